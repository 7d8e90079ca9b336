package kraft

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// TestOpenMeansThatAStockBrokerLeads: Open says nil where a stock broker leads and this process has left, and nowhere else; Owner says the same.
func TestOpenMeansThatAStockBrokerLeads(t *testing.T) {
	c := newFake(t)
	c.topic("orders", []int32{1, 2, 3})
	d := c.process()
	l := d.log(orders)
	for what, is := range map[string]struct {
		change func(*clustermetadata.Partition)
		owner  mirror.Ownership
		opens  bool
	}{
		"a stock broker leads": {func(p *clustermetadata.Partition) { p.Leader, p.ISR, p.LastKnownELR = 2, []int32{2, 3}, nil }, mirror.OwnerOpen, true},
		"a peer leads":         {func(p *clustermetadata.Partition) { p.Leader, p.ISR, p.LastKnownELR = other, []int32{other}, nil }, mirror.OwnerForeign, false},
		"nobody leads":         {func(p *clustermetadata.Partition) { p.Leader, p.ISR, p.LastKnownELR = -1, []int32{1}, nil }, mirror.OwnerOpen, false},
		"we return":            {func(p *clustermetadata.Partition) { p.Leader, p.ISR, p.LastKnownELR = -1, nil, []int32{us} }, mirror.OwnerForeign, false},
	} {
		c.change("orders", is.change)
		if err := l.Open(within(t, 5*time.Second)); (err == nil) != is.opens {
			t.Errorf("%s: open: %v", what, err)
		}
		if owner, _, err := l.Owner(within(t, 5*time.Second)); owner != is.owner {
			t.Errorf("%s: it is %v, %v", what, owner, err)
		}
	}
}

// TestAddingAgainLetsTakeOversBe: replicas that a hand-over left out are not asked for while the partition is worked on or taken over, and who was left out meanwhile stays remembered.
func TestAddingAgainLetsTakeOversBe(t *testing.T) {
	c := newFake(t)
	c.topic("orders", []int32{1, 2})
	d := c.process()
	l := d.log(orders)
	remember := func(f func(*memory)) {
		t.Helper()
		if err := d.remembered.change(t.Context(), "orders", l.id, f); err != nil {
			t.Fatal(err)
		}
	}
	again := func(want int) {
		t.Helper()
		if err := d.addAgain(within(t, 5*time.Second), "orders", l.id, nil); err != nil {
			t.Error(err)
		}
		if n := c.count(kmsg.AlterPartitionAssignments); n != want {
			t.Errorf("%d reassignments were asked for, and should be %d", n, want)
		}
	}
	remember(func(m *memory) { m.LeftOut, m.Takers = map[int32][]int32{0: {3}}, []int32{other} })
	again(0)
	remember(func(m *memory) { m.Takers = []int32{4242} }) // which is not there
	if !l.work.tryTake() {
		t.Fatal("something is under way")
	}
	again(0)
	l.work.release()
	newer := []int32{2, 3}
	before := func(ctx context.Context, req kmsg.Request) error {
		if req.Key() == kmsg.AlterPartitionAssignments.Int16() {
			return d.remembered.change(ctx, "orders", l.id, func(m *memory) { m.LeftOut = map[int32][]int32{0: newer} })
		}
		return nil
	}
	c.hook(func() { c.before = before })
	again(1)
	m, err := d.remembered.of(t.Context(), "orders", l.id)
	if err != nil || !slices.Equal(m.LeftOut[0], newer) {
		t.Errorf("%v is remembered, %v", m.LeftOut, err)
	}
}

// TestLeaveNamesWhatIsLeft: a process does not leave before it has put back what it changed, and one whose request to leave failed has not left.
func TestLeaveNamesWhatIsLeft(t *testing.T) {
	c := newFake(t)
	c.topic("orders", []int32{1, 2, 3})
	d := c.process()
	two := "2"
	if err := d.remembered.change(t.Context(), "orders", c.of("orders").TopicID, func(m *memory) { m.Configs = map[string]*string{minInSync: &two} }); err != nil {
		t.Fatal(err)
	}
	refuses := true
	instead := func(req kmsg.Request) kmsg.Response {
		switch req.(type) {
		case *kmsg.IncrementalAlterConfigsRequest:
			if refuses {
				resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
				r := kmsg.NewIncrementalAlterConfigsResponseResource()
				r.ResourceName, r.ErrorCode = "orders", kerr.TopicAuthorizationFailed.Code
				resp.Resources = append(resp.Resources, r)
				return resp
			}
		case *kmsg.UnregisterBrokerRequest:
			resp := kmsg.NewPtrUnregisterBrokerResponse()
			resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
			return resp
		}
		return nil
	}
	c.hook(func() { c.instead = instead })
	if err := d.Leave(within(t, 5*time.Second)); err == nil || !strings.Contains(err.Error(), "settings of topic orders") || c.count(kmsg.UnregisterBroker) > 0 {
		t.Errorf("left with settings that are not put back: %v", err)
	}
	c.hook(func() { refuses = false })
	if err := d.Leave(within(t, 5*time.Second)); !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		t.Errorf("leave: %v", err)
	}
	d.membership.mu.Lock()
	defer d.membership.mu.Unlock()
	if d.membership.leaving {
		t.Error("it takes itself for leaving, and is not")
	}
}
