package kraft_test

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

func TestListenerOfTheBrokersOwn(t *testing.T) {
	brokers := func(n int, names ...string) []clustermetadata.Broker {
		var bs []clustermetadata.Broker
		for i := range n {
			b := clustermetadata.Broker{ID: int32(i)}
			for _, name := range names {
				b.Listeners = append(b.Listeners, clustermetadata.Listener{Name: name, SecurityProtocol: int16(strings.Count(name, "S"))})
			}
			bs = append(bs, b)
		}
		return bs
	}
	for _, c := range []struct {
		brokers []clustermetadata.Broker
		name    string // Config.ListenerName
		want    string
		says    string
	}{
		{brokers(3, "INTERNAL", "CLIENT"), "", "INTERNAL", ""},
		{brokers(3, "REPLICATION", "CLIENT"), "REPLICATION", "REPLICATION", ""},
		{brokers(3, "REPLICATION", "CLIENT"), "", "", "set ListenerName"},
		{append(brokers(2, "INTERNAL", "CLIENT"), brokers(1, "CLIENT", "OTHER")...), "", "", "set ListenerName"},
		{brokers(3, "INTERNAL"), "", "", "one listener only, INTERNAL"},
		{brokers(3, "PLAINTEXT"), "PLAINTEXT", "", "one listener only, PLAINTEXT"},
		{brokers(3, "INTERNAL", "CLIENT"), "REPLICATION", "", "no broker has a listener"},
		{brokers(3, "SECURE", "CLIENT"), "SECURE", "", "speaks SSL, and Security.Protocol is PLAINTEXT"},
		{nil, "", "", "no broker is registered"},
	} {
		cfg := kraft.Config{ListenerName: c.name, Security: kraft.ListenerSecurity{Protocol: "PLAINTEXT"}}
		got, _, err := cfg.InterBrokerListener(c.brokers)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v and ListenerName %q gave %q, %v; want %q, %q", c.brokers, c.name, got, err, c.want, c.says)
		}
	}
}

// found is whether a report says so, in one finding.
func found(r kraft.Report, kind kraft.FindingKind, s kraft.Severity, says string) bool {
	return slices.ContainsFunc(r.Findings, func(f kraft.Finding) bool {
		return f.Kind == kind && f.Severity == s && strings.Contains(f.Error(), says)
	})
}

// registerOther registers a broker that never beats: it stays fenced.
func registerOther(t *testing.T, c *kafkatest.Cluster, id int32, dir [16]byte) {
	t.Helper()
	cl := direct(t, c)
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID, req.LogDirs, req.PreviousBrokerEpoch = id, c.ID(), [16]byte{1, byte(id)}, [][16]byte{dir}, -1
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "INTERNAL", "127.0.0.1", 1
	req.Listeners = append(req.Listeners, l)
	for name, highest := range kraft.HighestTested {
		f := kmsg.NewBrokerRegistrationRequestFeature()
		f.Name, f.MaxSupportedVersion = name, highest
		req.Features = append(req.Features, f)
	}
	resp, err := cl.Controller(bound(t), req)
	if err == nil {
		err = kerr.ErrorForCode(resp.(*kmsg.BrokerRegistrationResponse).ErrorCode)
	}
	if err != nil {
		t.Fatalf("registering broker %d: %v", id, err)
	}
}

func setBrokers(t *testing.T, c *kafkatest.Cluster, name string, value *string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType = kmsg.ConfigResourceTypeBroker
	v := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	v.Name, v.Value, v.Op = name, value, kmsg.IncrementalAlterConfigOpSet
	if value == nil {
		v.Op = kmsg.IncrementalAlterConfigOpDelete
	}
	res.Configs = append(res.Configs, v)
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(bound(t), c.AdminClient())
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRealKafkaPreflight: each thing that is wrong is a finding that says what to do; nothing is written by looking. At the end the quorum is made dynamic (KIP-853): joining works.
func TestRealKafkaPreflight(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{})
	look := func(change func(*kraft.Config)) kraft.Report {
		t.Helper()
		cfg := config(t, c)
		change(&cfg)
		before := metadataRecords(t, c)
		r := preflight(t, cfg)
		if after := metadataRecords(t, c); !maps.Equal(before, after) {
			t.Errorf("records were written: by type %v before, %v after", before, after)
		}
		return r
	}
	is := func(name string, r kraft.Report, kind kraft.FindingKind, s kraft.Severity, says string) {
		t.Helper()
		if !found(r, kind, s, says) {
			t.Errorf("%s: no finding about %s that %s and says %q:\n%s", name, kind, s, says, r)
		}
		passes := slices.Contains([]string{"only dead controllers", "an unknown name", "a port in use"}, name) // it may, with the same Config
		if inConfig := slices.ContainsFunc(r.Findings, func(f kraft.Finding) bool { return f.InConfig }); inConfig != (s == kraft.Blocks && kind != kraft.AboutRights && !passes) {
			t.Errorf("%s: that Config has to be changed is said: %t\n%s", name, inConfig, r)
		}
		if (r.Err() != nil) != (s == kraft.Blocks) {
			t.Errorf("%s: the error is %v\n%s", name, r.Err(), r)
		}
	}

	if r := look(func(*kraft.Config) {}); r.Err() != nil || len(r.Of(kraft.Warns)) > 0 || r.ClusterID != c.ID() {
		t.Errorf("where all is well: %v\n%s", r.Err(), r)
	} else {
		t.Logf("where all is well:\n%s", r)
	}
	controllers := c.ControllerAddresses()
	is("a dead controller", look(func(cfg *kraft.Config) { cfg.Controllers = append([]string{"127.0.0.1:1"}, controllers...) }), kraft.AboutControllers, kraft.Warns, "127.0.0.1:1")
	is("only dead controllers", look(func(cfg *kraft.Config) { cfg.Controllers = []string{"127.0.0.1:1"} }), kraft.AboutControllers, kraft.Blocks, "none of the controllers")
	is("a broker's listener", look(func(cfg *kraft.Config) { cfg.Controllers = append(slices.Clone(controllers), c.InternalAddress(1)) }), kraft.AboutControllers, kraft.Blocks, c.InternalAddress(1)+" is not a controller's listener")
	is("a controller's id", look(func(cfg *kraft.Config) { cfg.NodeID = 1 }), kraft.AboutNodeID, kraft.Blocks, "1 is a controller's node id")
	is("an address that is none", look(func(cfg *kraft.Config) { cfg.Advertised = "0.0.0.0:9092" }), kraft.AboutOwnListener, kraft.Blocks, "set Advertised")
	is("an unknown name", look(func(cfg *kraft.Config) { cfg.Advertised = "nowhere.invalid:9092" }), kraft.AboutOwnListener, kraft.Blocks, "nowhere.invalid")
	is("an address where nobody answers", look(func(cfg *kraft.Config) { cfg.Advertised = "127.0.0.1:1" }), kraft.AboutOwnListener, kraft.Warns, "127.0.0.1:1")
	taken := freeListener(t)
	defer taken.Close()
	is("a port in use", look(func(cfg *kraft.Config) { cfg.Listen = taken.Addr().String() }), kraft.AboutOwnListener, kraft.Blocks, "choose another address")
	is("somebody else's address", look(func(cfg *kraft.Config) { cfg.Advertised = taken.Addr().String() }), kraft.AboutOwnListener, kraft.Warns, "something else answers")
	is("a listener that is not there", look(func(cfg *kraft.Config) { cfg.ListenerName = "REPLICATION" }), kraft.AboutListener, kraft.Blocks, "no broker has a listener")
	is("the clients' listener", look(func(cfg *kraft.Config) { cfg.ListenerName = "CLIENT" }), kraft.AboutSettings, kraft.Blocks, "the inter-broker listener of broker 1 is INTERNAL")
	is("too few brokers", look(func(cfg *kraft.Config) { cfg.ReplicationFactor = 3 }), kraft.AboutBrokers, kraft.Warns, "lower ReplicationFactor")

	yes, rate := "true", "1000"
	setBrokers(t, c, "unclean.leader.election.enable", &yes)
	setBrokers(t, c, "follower.replication.throttled.rate", &rate)
	r := look(func(*kraft.Config) {})
	is("unclean elections", r, kraft.AboutSettings, kraft.Warns, "unclean.leader.election.enable")
	is("a quota", r, kraft.AboutSettings, kraft.Warns, "follower.replication.throttled.rate is 1000 bytes/s for all brokers")
	setBrokers(t, c, "unclean.leader.election.enable", nil)
	setBrokers(t, c, "follower.replication.throttled.rate", nil)

	registerOther(t, c, 7777, [16]byte{6, 7, 8})
	is("somebody else's id", look(func(cfg *kraft.Config) { cfg.NodeID = 7777 }), kraft.AboutNodeID, kraft.Blocks, "another broker is registered as 7777 (fenced")
	cfg := config(t, c)
	cfg.NodeID = 7777
	before := metadataRecords(t, c)
	_, err := kraft.Join(bound(t), cfg)
	var f kraft.Finding
	if !errors.Is(err, kraft.ErrPreflight) || !errors.As(err, &f) || f.Kind != kraft.AboutNodeID {
		t.Errorf("Join under somebody else's id: %v", err)
	}
	if after := metadataRecords(t, c); !maps.Equal(before, after) {
		t.Errorf("Join wrote records: by type %v before, %v after", before, after)
	}
	registerOther(t, c, 7778, kraft.DirectoryID(c.ID(), 7778))
	is("ours, gone", look(func(cfg *kraft.Config) { cfg.NodeID = 7778 }), kraft.AboutNodeID, kraft.Fine, "was ours before")

	level := kraft.HighestTested["metadata.version"]
	kraft.HighestTested["metadata.version"] = 29
	is("a newer cluster", look(func(*kraft.Config) {}), kraft.AboutVersions, kraft.Blocks, "metadata.version is at level 30, this version was tried up to 29")
	is("a newer cluster that may be", look(func(cfg *kraft.Config) { cfg.UntestedVersion = true }), kraft.AboutVersions, kraft.Warns, "were not tried there")
	kraft.HighestTested["metadata.version"] = level

	// A dynamic quorum: Kafka 4.3 turns a static one into it when kraft.version is raised, which every registered broker has to know. A process that is in stays in, and one can join.
	j := join(t, c)
	is("ours, alive", look(func(*kraft.Config) {}), kraft.AboutNodeID, kraft.Warns, "a process of ours lives under 9999")
	if _, err := j.CreateTopic(bound(t), mirror.TopicSpec{Name: "tiered", Partitions: 1, Configs: map[string]string{"remote.storage.enable": "true"}}); !errors.Is(err, mirror.ErrRemoteStorage) || !strings.Contains(err.Error(), "remote.storage.enable=true") {
		t.Errorf("a topic with tiered storage: %v", err)
	}
	update := kmsg.NewPtrUpdateFeaturesRequest()
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = "kraft.version", 1, 1
	update.FeatureUpdates = append(update.FeatureUpdates, u)
	cl, err := kgo.NewClient(append(c.ListenerOptions("CONTROLLER", kafkatest.Credentials{}, nil), kgo.SeedBrokers(controllers...))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	raw, err := cl.SeedBrokers()[0].Request(bound(t), update)
	if err == nil {
		resp := raw.(*kmsg.UpdateFeaturesResponse)
		if err = kerr.ErrorForCode(resp.ErrorCode); err != nil && resp.ErrorMessage != nil {
			t.Log(*resp.ErrorMessage)
		}
	}
	if err != nil {
		t.Fatalf("making the quorum dynamic: %v", err)
	}
	finalized := func() int16 {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
		raw, err := cl.SeedBrokers()[0].Request(bound(t), req)
		if err != nil {
			return -1
		}
		for _, f := range raw.(*kmsg.ApiVersionsResponse).FinalizedFeatures {
			if f.Name == "kraft.version" {
				return f.MaxVersionLevel
			}
		}
		return 0
	}
	eventually(t, "kraft.version 1", func() bool { return finalized() == 1 })
	life(t, j)
	if r := look(func(*kraft.Config) {}); r.Err() != nil || len(r.Of(kraft.Warns)) > 0 {
		t.Errorf("dynamic quorum: %v\n%s", r.Err(), r)
	}
	if err := join(t, c).Leave(bound(t)); err != nil {
		t.Errorf("dynamic quorum: leave: %v", err)
	}
}

// TestPreflightLeavesTheListener: looking leaves a listener that was given as it was.
func TestPreflightLeavesTheListener(t *testing.T) {
	l := freeListener(t)
	defer l.Close()
	cfg := kraft.Config{NodeID: 1, Controllers: []string{"127.0.0.1:1"}, Listener: l, Folder: t.TempDir(), Remember: keyedlog.NewMemory()}
	if r, err := kraft.Preflight(bound(t), cfg); err != nil || r.Err() == nil {
		t.Fatalf("%v, %v", r, err)
	}
	go func() {
		if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
			conn.Close()
		}
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("the listener does not work any more: %v", err)
	}
	conn.Close()
}
