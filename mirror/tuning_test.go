package mirror

import (
	"testing"
	"time"
)

func TestSpec7NodeOptionsReachTheConfig(t *testing.T) {
	o, err := NodeOptionsFrom(Settings{"mirror.num.replica.fetchers": "3", "mirror.metadata.refresh.interval.ms": "5000", "mirror.fetch.backoff.ms": "70",
		"mirror.failed.retry.initial.backoff.ms": "20", "mirror.failed.retry.max.backoff.ms": "900", "mirror.failed.retry.max.attempts": "4"})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Name: "m", CallBound: time.Hour}
	o.Apply(&c)
	if c.FetchersPerBroker != 3 || c.RefreshInterval != 5*time.Second || c.FetchBackoff != 70*time.Millisecond || c.Retry.Initial != 20*time.Millisecond ||
		c.Retry.Max != 900*time.Millisecond || c.Retry.Attempts != 4 || c.Name != "m" || c.CallBound != time.Hour {
		t.Errorf("%+v", c)
	}
}
