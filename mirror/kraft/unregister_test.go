package kraft

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// TestKillSwitchSaysWhoMayBeElected: only a topic's own unclean.leader.election.enable=false keeps the controllers from electing a replica that is not in sync. Where it says nothing, the
// cluster's default counts, which may stand in files that nobody sees here.
func TestKillSwitchSaysWhoMayBeElected(t *testing.T) {
	for _, x := range []struct {
		own, says string
		elects    int32
	}{
		{"false", "1 partitions have no leader from then on: nobody reads or writes them, their copies stay, nothing becomes writable", -1},
		{"true", "WARNING: orders-0: broker 1 may be elected", 1},
		{"", "WARNING: orders-0: broker 1 may be elected", 1},
	} {
		f := pretend(t)
		f.broker(1, 10, false)
		f.broker(pretendedNode, 30, false)
		f.topic("orders", 1)
		f.partition(clustermetadata.Partition{Topic: "orders", TopicID: mirror.TopicID{15: 1}, Replicas: []int32{pretendedNode, 1}, ISR: []int32{pretendedNode}, Leader: pretendedNode})
		if x.own != "" {
			f.setting("orders", uncleanElection, x.own)
		}
		f.seen()
		r := Remains{NodeID: pretendedNode, Registration: RegisteredAlive}
		f.d.meta.look(func(im *clustermetadata.Image) {
			p, _ := im.Partition("orders", 0)
			r.Partitions = []RemainingPartition{{TopicPartition: mirror.TopicPartition{Topic: "orders"}, Leader: p.Leader, ISR: p.ISR, Elects: f.d.heir(im, p)}}
		})
		text := r.IfUnregistered()
		if r.Partitions[0].Elects != x.elects || !strings.Contains(text, x.says) || x.elects >= 0 && strings.Contains(text, "nothing becomes writable") {
			t.Errorf("%s=%q: broker %d is elected, and it says\n%s", uncleanElection, x.own, r.Partitions[0].Elects, text)
		}
	}
}

// TestKillSwitchNeedsControllersOnly: no broker is asked for anything, and no storage.
func TestKillSwitchNeedsControllersOnly(t *testing.T) {
	f := pretend(t)
	f.broker(1, 10, false)
	f.broker(pretendedNode, 30, false)
	f.seen()
	var mu sync.Mutex
	var asked []string
	f.answer = func(req kmsg.Request) (kmsg.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, kmsg.NameForKey(req.Key()))
		switch q := req.(type) {
		case *kmsg.DescribeClusterRequest:
			if q.EndpointType != 2 {
				return nil, errors.New("brokers are asked for")
			}
			resp := kmsg.NewPtrDescribeClusterResponse()
			resp.ClusterID = "east"
			return resp, nil
		case *kmsg.UnregisterBrokerRequest:
			f.write(1, 0, append(kbin.AppendInt64(kbin.AppendInt32(nil, q.BrokerID), 30), 0))
			return kmsg.NewPtrUnregisterBrokerResponse(), nil
		}
		return nil, errors.New("nobody answers")
	}
	cfg := f.config()
	cfg.Remember = nil
	began := time.Now()
	r, err := PlanUnregister(bounded(t), cfg)
	if err != nil || r.ClusterID != "east" || r.Registration != RegisteredAlive || slices.Contains(asked, "UnregisterBroker") {
		t.Errorf("%+v, %v, asked %v", r, err, asked)
	}
	if r, err = Unregister(bounded(t), cfg); err != nil || r.Registration != RegisteredAlive || r.ClusterID != "east" {
		t.Errorf("%+v, %v", r, err)
	}
	if slices.Sort(asked); !slices.Equal(asked, []string{"DescribeCluster", "DescribeCluster", "UnregisterBroker"}) {
		t.Errorf("asked %v in %s", asked, time.Since(began))
	}
}
