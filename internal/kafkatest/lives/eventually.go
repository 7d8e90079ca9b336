package lives

import (
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// Bound is the longest that a test waits for any one thing. A package that needs another one sets it in its TestMain.
var Bound = 60 * time.Second

// Eventually asks until done, with short pauses: brokers have no way to call back.
func Eventually(t kafkatest.T, what string, done func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(Bound)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, now := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s; %s", Bound, what, now)
		}
		<-tick.C
	}
}
