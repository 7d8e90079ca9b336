package kraft

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/clientlistener"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// TestConsumersAreSentWhereTheRecordsAre: to followers that live, can be reached, have what is replicated and what is asked for, and nothing that was cut; near ones first, else spread.
func TestConsumersAreSentWhereTheRecordsAre(t *testing.T) {
	good := func(id int32) leaderlog.Follower {
		return leaderlog.Follower{Broker: id, Live: true, Position: 100, Truncated: true, Limit: -1, LogStart: 10}
	}
	changed := func(id int32, change func(*leaderlog.Follower)) leaderlog.Follower {
		f := good(id)
		change(&f)
		return f
	}
	now := time.Now()
	racks := map[int32]string{1: "a", 2: "b", 3: "", 4: "a"}
	for name, c := range map[string]struct {
		followers  []leaderlog.Follower
		replicated int64
		offset     int64
		rack       string
		want       map[int32]bool // nil: nobody
	}{
		"all":                         {[]leaderlog.Follower{good(1), good(2), good(3)}, 100, 50, "", map[int32]bool{1: true, 2: true, 3: true}},
		"the near one":                {[]leaderlog.Follower{good(1), good(2), good(3)}, 100, 50, "b", map[int32]bool{2: true}},
		"near ones":                   {[]leaderlog.Follower{good(1), good(2), good(4)}, 100, 50, "a", map[int32]bool{1: true, 4: true}},
		"none is near":                {[]leaderlog.Follower{good(1), good(3)}, 100, 50, "c", map[int32]bool{1: true, 3: true}},
		"no rack is no near one":      {[]leaderlog.Follower{good(2), good(3)}, 100, 50, "", map[int32]bool{2: true, 3: true}},
		"the near one is dead":        {[]leaderlog.Follower{changed(1, func(f *leaderlog.Follower) { f.Live = false }), good(2)}, 100, 50, "a", map[int32]bool{2: true}},
		"the near one just copies":    {[]leaderlog.Follower{changed(1, func(f *leaderlog.Follower) { f.Position, f.InStep = 99, now.Add(-5*time.Second) }), good(2)}, 100, 50, "a", map[int32]bool{1: true}},
		"the near one has not got it": {[]leaderlog.Follower{changed(1, func(f *leaderlog.Follower) { f.Position, f.InStep = 40, now }), good(2)}, 100, 50, "a", map[int32]bool{2: true}},
		"the near one falls behind":   {[]leaderlog.Follower{changed(1, func(f *leaderlog.Follower) { f.Position, f.InStep = 99, now.Add(-11*time.Second) }), good(2)}, 100, 50, "a", map[int32]bool{2: true}},
		"the near one is behind":      {[]leaderlog.Follower{changed(1, func(f *leaderlog.Follower) { f.Position = 99 }), good(2)}, 100, 50, "a", map[int32]bool{2: true}},
		"one cannot be reached":       {[]leaderlog.Follower{good(1), good(9)}, 100, 50, "", map[int32]bool{1: true}},
		"one has what was cut":        {[]leaderlog.Follower{good(1), changed(2, func(f *leaderlog.Follower) { f.Limit = 120 })}, 100, 50, "", map[int32]bool{1: true}},
		"one has not come yet":        {[]leaderlog.Follower{good(1), changed(2, func(f *leaderlog.Follower) { f.Truncated = false })}, 100, 50, "", map[int32]bool{1: true}},
		"one has deleted it":          {[]leaderlog.Follower{good(1), changed(2, func(f *leaderlog.Follower) { f.LogStart = 51 })}, 100, 50, "", map[int32]bool{1: true}},
		"all have deleted it":         {[]leaderlog.Follower{good(1), good(2)}, 100, 5, "", nil},
		"beyond what one has":         {[]leaderlog.Follower{good(1), changed(2, func(f *leaderlog.Follower) { f.Position = 110 })}, 100, 105, "", map[int32]bool{2: true}},
		"nobody":                      {nil, 0, 0, "", nil},
	} {
		got := map[int32]bool{}
		for spread := range uint64(12) {
			id, ok := chooseFollower(append([]leaderlog.Follower(nil), c.followers...), racks, c.replicated, clientlistener.ReadQuestion{Offset: c.offset, Rack: c.rack, Spread: spread}, now)
			if ok != (c.want != nil) {
				t.Errorf("%s: found %v", name, ok)
			}
			if ok {
				got[id] = true
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for id := range got {
			if !c.want[id] {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
}

// TestClientListenerIsChecked: what cannot work is said before anything is asked.
func TestClientListenerIsChecked(t *testing.T) {
	some := func() (*tls.Config, error) { return &tls.Config{}, nil }
	for name, c := range map[string]struct {
		clients ClientListener
		want    string // "" for none
	}{
		"all is well":            {ClientListener{Name: "CLIENT", Listen: ":0"}, ""},
		"all is well with TLS":   {ClientListener{Name: "CLIENT", Listen: ":0", Protocol: "SASL_SSL", TLS: some, BrokerTLS: some}, ""},
		"without a name":         {ClientListener{Listen: ":0"}, "Clients.Name is empty"},
		"nowhere":                {ClientListener{Name: "CLIENT"}, "neither Clients.Listen nor Clients.Listener"},
		"the brokers' own":       {ClientListener{Name: "REPLICATION", Listen: ":0"}, "clients need another listener"},
		"no protocol of Kafka's": {ClientListener{Name: "CLIENT", Listen: ":0", Protocol: "TLS"}, "none of PLAINTEXT"},
		"no certificate":         {ClientListener{Name: "CLIENT", Listen: ":0", Protocol: "SSL", BrokerTLS: some}, "are needed for SSL"},
		"nobody trusted":         {ClientListener{Name: "CLIENT", Listen: ":0", Protocol: "SASL_SSL", TLS: some}, "are needed for SASL_SSL"},
		"TLS without TLS":        {ClientListener{Name: "CLIENT", Listen: ":0", Protocol: "SASL_PLAINTEXT", TLS: some}, "leave them nil"},
	} {
		cfg := Config{NodeID: 9999, Controllers: []string{"a:9093"}, Listen: ":0", ListenerName: "REPLICATION", Folder: "f", Remember: keyedlog.NewMemory(), Clients: &c.clients}
		before := c.clients.Protocol
		got, err := cfg.withDefaults()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", name, err)
		case err == nil && (got.Clients.Protocol == "" || c.clients.Protocol != before):
			t.Errorf("%s: the protocol is %q, the caller's %q", name, got.Clients.Protocol, c.clients.Protocol)
		}
	}
}
