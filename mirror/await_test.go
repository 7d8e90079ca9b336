package mirror_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

func TestAwaitSeesWhatIsNoChangeOfState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		m := follow(t, "m", a, b)
		defer m.close()
		m.start("t")
		began := time.Now()
		if err := m.Await(t.Context(), func(s mirror.Status) bool {
			return each(s, func(p mirror.PartitionStatus) bool { return p.LagOffsets == 0 })
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("after %s", took)
		}
	})
}

func TestAwaitEndsWhenAnotherProcessHasTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		m := follow(t, "m", a, b)
		defer m.close()
		m.start("t")
		m.untilInStep()
		if _, err := b.StateStore().Open(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
		if err := m.Await(t.Context(), func(mirror.Status) bool { return false }); !errors.Is(err, mirror.ErrFenced) {
			t.Errorf("%v", err)
		}
	})
}

func TestAMirrorThatNobodyHasCreatedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		opens := opener(new(atomic.Int64), map[string]*side{"one": a})
		m := follow(t, "nonesuch", a, b, opens)
		defer m.close()
		set(t, b, "bootstrap.servers", "one") // of mirror m
		time.Sleep(time.Hour)
		told := eventsOf[mirror.TopicTrouble](m)
		if len(told) == 0 || len(told) > 10 {
			t.Fatalf("%d events", len(told))
		}
		last := told[len(told)-1].String()
		expectWords(t, last, "nobody has created mirror nonesuch", "there are m")
	})
}

func TestReportsTellAtOnceWhetherTheSourceAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		m := follow(t, "m", a, b, func(c *mirror.Config) { c.RefreshInterval = time.Hour })
		defer m.close()
		said := func() string {
			r, err := b.Control().Reports(t.Context())
			if err != nil || len(r.Nodes) != 1 {
				return "no report"
			}
			return r.Nodes[0].SourceError
		}
		time.Sleep(2 * time.Second)
		if got := said(); got != "it was not asked yet" {
			t.Errorf("before anything was asked: %q", got)
		}
		m.start("t")
		m.untilInStep()
		m.until("answers", func(mirror.Status) bool { return said() == "" })
		a.SetUnreachable(true)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := said(); !strings.Contains(got, "unreachable") {
			t.Errorf("five seconds after the source has died: %q", got)
		}
	})
}
