package kraft

import (
	"context"
	"crypto/tls"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clientlistener"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/mirror"
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

// TestClientsAreToldWhatIsReplicated: and nothing of an end that is in memory alone, or is not known yet after a restart.
func TestClientsAreToldWhatIsReplicated(t *testing.T) {
	c := newFake(t)
	c.topic("orders", []int32{us, 1, 2, 3})
	d := c.process(func(cfg *Config) { cfg.Clients = &ClientListener{Name: "CLIENT", Listen: "127.0.0.1:0"} })
	l := d.log(orders)
	r := &readLog{l, d.readTopics().racks}
	latest := clientlistener.OffsetQuestion{LeaderEpoch: -1, Timestamp: clientlistener.Latest}
	l.log.SetFollowers([]int32{1, 2, 3}, []int32{1, 2, 3}, nil, 2)
	if a := r.Offset(t.Context(), latest); a.Code != kerr.NotLeaderForPartition.Code {
		t.Errorf("before it is known: %+v", a)
	}
	if a := r.Read(clientlistener.ReadQuestion{LeaderEpoch: -1}); a.Code != kerr.NotLeaderForPartition.Code {
		t.Errorf("before it is known: %+v", a)
	}
	l.log.Lead(4)
	l.log.Begin(leaderlog.Found{Start: 10, End: 100, Epochs: []logtrunc.Entry{{Epoch: 3, Start: 10}}})
	l.log.Release()
	copies := func(broker int32, offset int64) {
		t.Helper()
		if a := l.log.Fetch(replicaserver.FetchQuery{Broker: broker, BrokerEpoch: -1, LeaderEpoch: 4, Offset: offset, LastFetchedEpoch: 3, LogStart: 10}); a.Code != 0 || a.Diverging {
			t.Fatalf("broker %d: %+v", broker, a)
		}
	}
	for _, broker := range []int32{1, 2} {
		if a := r.Offset(t.Context(), latest); a != clientlistener.NoOffset(kerr.OffsetNotAvailable.Code) {
			t.Errorf("before broker %d has come: %+v", broker, a)
		}
		copies(broker, 100-int64(broker))
	}
	for what, is := range map[string]struct {
		question clientlistener.OffsetQuestion
		want     clientlistener.OffsetAnswer
	}{
		"the end":                  {latest, clientlistener.OffsetAnswer{Timestamp: -1, Offset: 98, LeaderEpoch: 3}},
		"the start":                {clientlistener.OffsetQuestion{LeaderEpoch: 4, Timestamp: clientlistener.Earliest}, clientlistener.OffsetAnswer{Timestamp: -1, Offset: 10, LeaderEpoch: 3}},
		"the local start":          {clientlistener.OffsetQuestion{LeaderEpoch: -1, Timestamp: clientlistener.EarliestLocal}, clientlistener.OffsetAnswer{Timestamp: -1, Offset: 10, LeaderEpoch: 3}},
		"what is tiered":           {clientlistener.OffsetQuestion{LeaderEpoch: -1, Timestamp: clientlistener.LatestTiered}, clientlistener.NoOffset(0)},
		"what nobody knows":        {clientlistener.OffsetQuestion{LeaderEpoch: -1, Timestamp: -99}, clientlistener.NoOffset(kerr.UnsupportedVersion.Code)},
		"an older leader":          {clientlistener.OffsetQuestion{LeaderEpoch: 3, Timestamp: clientlistener.Latest}, clientlistener.NoOffset(kerr.FencedLeaderEpoch.Code)},
		"a newer leader":           {clientlistener.OffsetQuestion{LeaderEpoch: 5, Timestamp: clientlistener.Latest}, clientlistener.NoOffset(kerr.UnknownLeaderEpoch.Code)},
		"the last stable, unasked": {clientlistener.OffsetQuestion{LeaderEpoch: -1, Timestamp: clientlistener.Latest, Committed: true}, clientlistener.NoOffset(kerr.OffsetNotAvailable.Code)}, // nobody can be asked here
	} {
		if a := r.Offset(t.Context(), is.question); a != is.want {
			t.Errorf("%s: %+v, want %+v", what, a, is.want)
		}
	}
	for offset, want := range map[int64]int16{9: kerr.OffsetOutOfRange.Code, 101: kerr.OffsetOutOfRange.Code, 50: kerr.ReplicaNotAvailable.Code} { // the fake's brokers have no listener for clients
		if a := r.Read(clientlistener.ReadQuestion{LeaderEpoch: -1, Offset: offset}); a.Code != want || a.HighWatermark != 98 || a.LogStart != 10 {
			t.Errorf("reading at %d: %+v", offset, a)
		}
	}
	l.log.Hold()
	if a := r.Read(clientlistener.ReadQuestion{LeaderEpoch: -1, Offset: 50}); a.Code != kerr.NotLeaderForPartition.Code || a.HighWatermark != -1 {
		t.Errorf("while it is held: %+v", a)
	}
}

// TestClientsQuestionsGoTheirOwnWay: what clients have followers asked is sent on no connection on which this process's own work is done, and which brokers live is found once for an answer.
func TestClientsQuestionsGoTheirOwnWay(t *testing.T) {
	c := newFake(t)
	c.topic("orders", []int32{us, 1, 2, 3})
	d := c.process(func(cfg *Config) { cfg.Clients = &ClientListener{Name: "CLIENT", Listen: "127.0.0.1:0"} })
	l := d.log(orders)
	l.log.SetFollowers([]int32{1, 2, 3}, []int32{1, 2, 3}, nil, 2)
	l.log.Lead(4)
	l.log.Begin(leaderlog.Found{Start: 10, End: 100, Epochs: []logtrunc.Entry{{Epoch: 3, Start: 10}}})
	l.log.Release()
	for _, broker := range []int32{1, 2} {
		l.log.Fetch(replicaserver.FetchQuery{Broker: broker, BrokerEpoch: -1, LeaderEpoch: 4, Offset: 100, LastFetchedEpoch: 3, LogStart: 10})
	}
	var asked int
	client, err := kraftclient.New(kraftclient.Config{
		Controllers: []string{"127.0.0.1:1"}, Address: func(int32) (string, bool) { return "127.0.0.1:1", true },
		Intercept: func(_ context.Context, raw kmsg.Request, _ func() (kmsg.Response, error)) (kmsg.Response, error) {
			asked++
			req := raw.(*kmsg.ListOffsetsRequest)
			resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Offset, p.Timestamp = 42, req.Topics[0].Partitions[0].Timestamp
			resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: req.Topics[0].Topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{p}}}
			return resp, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	d.client = client
	if err := d.connectForClients(); err != nil {
		t.Fatal(err)
	}
	defer d.reads.client.Close()
	if d.reads.client == d.client {
		t.Error("clients' questions are sent on the connections of this process's own work")
	}
	d.client = nil // whoever uses it now ends the test
	looked := 0
	r := &readLog{l, sync.OnceValue(func() map[int32]string { looked++; return map[int32]string{1: "", 2: ""} })}
	for range 3 {
		want := clientlistener.OffsetAnswer{Timestamp: 1000, Offset: 42, LeaderEpoch: -1}
		if a := r.Offset(t.Context(), clientlistener.OffsetQuestion{LeaderEpoch: -1, Timestamp: 1000}); a != want {
			t.Errorf("%+v, want %+v", a, want)
		}
		if a := r.Read(clientlistener.ReadQuestion{LeaderEpoch: -1, Offset: 50}); a.Code != 0 {
			t.Errorf("%+v", a)
		}
	}
	if asked != 3 || looked != 1 {
		t.Errorf("followers were asked %d times, which brokers live %d times", asked, looked)
	}
}

// TestOnlyWhatIsLedHereIsAnswered: what stock brokers and other mirror processes lead is theirs to answer, and after the registration is lost everything is.
func TestOnlyWhatIsLedHereIsAnswered(t *testing.T) {
	c := newFake(t)
	c.topic("orders", []int32{us, 1, 2, 3})
	d := c.process(func(cfg *Config) { cfg.Clients = &ClientListener{Name: "CLIENT", Listen: "127.0.0.1:0"} })
	l := d.log(orders)
	led := func(what string, want bool) {
		t.Helper()
		if err := d.meta.caughtUp(within(t, 5*time.Second)); err != nil && want {
			t.Fatal(err)
		}
		_, byName := d.readTopics().ByName("orders", 0)
		_, byID := d.readTopics().ByID(l.id, 0)
		if byName != want || byID != want {
			t.Errorf("%s: by name %v, by id %v", what, byName, byID)
		}
	}
	for what, is := range map[string]struct {
		leader int32
		want   bool
	}{"we lead": {us, true}, "a stock broker leads": {1, false}, "a peer leads": {other, false}, "nobody leads": {-1, false}} {
		c.change("orders", func(p *clustermetadata.Partition) { p.Leader, p.ISR = is.leader, []int32{max(is.leader, 1)} })
		led(what, is.want)
	}
	c.change("orders", func(p *clustermetadata.Partition) { p.Leader, p.ISR = us, []int32{us} })
	if _, ok := d.readTopics().ByName("orders", 7); ok {
		t.Error("a partition that is not there")
	}
	if _, ok := d.readTopics().ByID(mirror.TopicID{9}, 0); ok {
		t.Error("a topic that is not there")
	}
	led("we lead again", true)
	d.membership.lose(Unregistered, ErrUnregistered)
	led("the registration is lost", false)
}
