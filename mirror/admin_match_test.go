package mirror

import (
	"context"
	"errors"
	"reflect"
	"testing"
)

// listing is a destination that names its topics.
type listing struct {
	*adminWorld
	names []string
	err   error
}

func (l listing) TopicNames(context.Context) ([]string, error) { return l.names, l.err }

func TestMatchTopics(t *testing.T) {
	c := controlWith(t, wishOf("pay", "m"), wishOf("pay-old", "m.stopped"), wishOf("orders", "m"), wishOf("pay-theirs", "other"))
	there := listing{adminWorld: &adminWorld{}, names: []string{"pay-theirs", "pay-new", "__pay", "pay", "orders"}}
	for _, tc := range []struct {
		pattern    string
		unmirrored bool
		want       []string
	}{
		{"pay.*", false, []string{"pay", "pay-old"}},
		{"pay.*", true, []string{"pay", "pay-new", "pay-old"}},
		{".*", true, []string{"orders", "pay", "pay-new", "pay-old"}},
		{"nothing", true, nil},
	} {
		got, err := there.adminOver(t, c, nil, func(cfg *AdminConfig) { cfg.Destination = there }).MatchTopics(bg, tc.pattern, tc.unmirrored)
		if err != nil || len(got)+len(tc.want) > 0 && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s, %v: %v %v", tc.pattern, tc.unmirrored, got, err)
		}
	}
	if got, err := there.adminOver(t, c, nil).MatchTopics(bg, "pay.*", true); err != nil || len(got) != 2 {
		t.Errorf("a destination that names no topics: %v %v", got, err)
	}
	_, err := there.adminOver(t, c, nil).MatchTopics(bg, "pay(", false)
	wantCode(t, "a bad pattern", err, InvalidRegularExpression, "pay(")
	there.err = errDown
	if _, err := there.adminOver(t, c, nil, func(cfg *AdminConfig) { cfg.Destination = there }).MatchTopics(bg, "pay.*", true); !errors.Is(err, errDown) {
		t.Errorf("%v", err)
	}
}
