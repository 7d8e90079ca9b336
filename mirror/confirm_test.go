package mirror

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// confirmedSource is a source whose topics have their name's first letters as ids. Each look at its topics waits to be let on.
type confirmedSource struct {
	Source
	asked chan string // the names of a look
	let   chan struct{}
}

func (s *confirmedSource) Cluster(context.Context) (ClusterInfo, error) {
	return ClusterInfo{ID: "A"}, nil
}

func (s *confirmedSource) Topics(_ context.Context, names ...string) (topics []SourceTopic, err error) {
	s.asked <- strings.Join(names, ",")
	<-s.let
	for _, name := range names {
		topics = append(topics, SourceTopic{Topic: Topic{Name: name, ID: idOf(name)}})
	}
	return topics, nil
}

func idOf(name string) (id TopicID) {
	copy(id[:], name)
	return id
}

// TestConfirmationsAreShared by those who came before the question was asked: it names all of their topics, and each gets its own answer. Who comes when it is under way may have read since.
func TestConfirmationsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		source := &confirmedSource{asked: make(chan string, 10), let: make(chan struct{})}
		m := &Mirror{cfg: Config{Source: source, CallBound: 1e9}, ctx: ctx}
		m.desk.m, m.desk.own = m, "B"
		type answer struct {
			same map[string]bool
			err  error
		}
		confirm := func(ids map[string]TopicID) chan answer {
			done := make(chan answer, 1)
			go func() {
				same, err := m.desk.confirm(t.Context(), ids)
				done <- answer{same, err}
			}()
			synctest.Wait()
			return done
		}
		looks := func(want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for len(source.asked) > 0 {
				got = append(got, <-source.asked)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("looked at %q, not at %q", got, want)
			}
		}
		only := func(a answer, want string) {
			t.Helper()
			if a.err != nil || len(a.same) != 1 || !a.same[want] {
				t.Errorf("%v, not %s", a, want)
			}
		}
		first := confirm(map[string]TopicID{"a": idOf("a")})
		looks("a")
		second := confirm(map[string]TopicID{"a": idOf("a"), "c": idOf("an older one")})
		third := confirm(map[string]TopicID{"b": idOf("b")})
		none := confirm(nil)
		looks()
		source.let <- struct{}{}
		only(<-first, "a")
		looks("a,b,c")
		source.let <- struct{}{}
		only(<-second, "a")
		only(<-third, "b")
		if a := <-none; a.err != nil || len(a.same) != 0 {
			t.Errorf("%v", a)
		}
		if a := <-confirm(nil); a.err != nil {
			t.Errorf("%v", a)
		}
		looks() // who has no topic needs none
		last := confirm(map[string]TopicID{"d": idOf("d")})
		looks("d")
		stop() // the mirror ends
		source.let <- struct{}{}
		<-last
		m.running.Wait()
	})
}
