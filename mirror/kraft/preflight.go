package kraft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
)

// Severity is what a Finding means for joining.
type Severity uint8

// The severities.
const (
	Fine   Severity = iota // looked at, and as it should be
	Warns                  // joining works; a person should know
	Blocks                 // Join refuses
)

func (s Severity) String() string { return [...]string{"fine", "warns", "blocks"}[s] }

// FindingKind is what a Finding is about.
type FindingKind string

// The kinds.
const (
	AboutControllers FindingKind = "controllers"  // reached, and controllers
	AboutVersions    FindingKind = "versions"     // feature levels
	AboutCluster     FindingKind = "cluster"      // its id
	AboutListener    FindingKind = "listener"     // the brokers' inter-broker listener
	AboutNodeID      FindingKind = "node id"      // whether Config.NodeID is free
	AboutBrokers     FindingKind = "brokers"      // reached with BrokerOptions, and how many live
	AboutOwnListener FindingKind = "own listener" // how brokers will reach this process
	AboutRights      FindingKind = "rights"       // see Finding.Right
	// AboutClientListener is about Config.Clients: the brokers' listener of that name, and how clients will reach this process.
	AboutClientListener FindingKind = "client listener"
	AboutSettings       FindingKind = "settings" // of the cluster
)

// Finding is one thing that Preflight has looked at.
type Finding struct {
	Kind     FindingKind
	Severity Severity
	Right    Right  // AboutRights: which one
	What     string // what was found
	Do       string // what to do about it; "" for nothing
	// InConfig says of one that blocks that Config has to be changed: the same Config meets it again, whatever comes up meanwhile.
	InConfig bool
}

func (f Finding) Error() string {
	if f.Do == "" {
		return fmt.Sprintf("%s: %s", f.Kind, f.What)
	}
	return fmt.Sprintf("%s: %s; %s", f.Kind, f.What, f.Do)
}

// Report is what Preflight found, in the order in which it looked.
type Report struct {
	ClusterID string // "" if no broker told it
	Findings  []Finding
}

// ErrPreflight is what errors.Is finds in the error of a Join that Preflight's findings forbid.
var ErrPreflight = errors.New("kraft: this process cannot join the cluster as things are; nothing was changed")

// Err joins ErrPreflight and all findings that block (each a Finding for errors.As), nil if none does.
func (r Report) Err() error {
	var all []error
	for _, f := range r.Findings {
		if f.Severity == Blocks {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.Join(append([]error{ErrPreflight}, all...)...)
}

// Of are the findings of one severity.
func (r Report) Of(s Severity) []Finding {
	var fs []Finding
	for _, f := range r.Findings {
		if f.Severity == s {
			fs = append(fs, f)
		}
	}
	return fs
}

// String has one line a finding.
func (r Report) String() string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-6s %s\n", f.Severity, f.Error())
	}
	return b.String()
}

// Preflight looks at the cluster as Join would, and changes nothing: nothing is registered, no topic is made, no producer id is taken. Rights are tried by requests that have no
// effect. Config.Listen is opened for a moment. The error is about cfg alone, or ctx; everything else is a Finding.
func Preflight(ctx context.Context, cfg Config) (Report, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Report{}, err
	}
	d := newDestination(cfg)
	defer d.Close()
	if err := d.connect(); err != nil {
		return Report{}, err
	}
	l, address, finding := d.bind()
	if l != nil && cfg.Listener == nil {
		defer l.Close()
	}
	p := &preflight{d: d, listener: l, advertised: address}
	if finding != nil {
		p.add(*finding)
	}
	p.openClients()
	if cfg.Clients != nil && cfg.Clients.Listener == nil {
		defer p.closeClients()
	}
	p.look(ctx)
	return p.report, ctx.Err()
}

// preflight is one look.
type preflight struct {
	d              *Destination
	listener       net.Listener // nil: it could not be opened
	advertised     hostPort
	clientListener net.Listener // Config.Clients'; nil: none, or it could not be opened
	forClients     hostPort
	patient        bool // waits for the metadata as long as the context: an election of controllers must not end a Join

	report   Report
	versions *kmsg.ApiVersionsResponse // of a controller
	rights   rightsChecked
	brokers  []brokerSeen
}

// brokerSeen is one live stock broker.
type brokerSeen struct {
	broker  clustermetadata.Broker
	err     error             // it was not reached
	cluster string            // id
	configs map[string]string // nil: not told
}

// preflightBound is how long one node is waited for.
const preflightBound = 5 * time.Second

func (p *preflight) add(f Finding) { p.report.Findings = append(p.report.Findings, f) }

func (p *preflight) addf(kind FindingKind, s Severity, do, format string, args ...any) {
	p.add(Finding{Kind: kind, Severity: s, What: fmt.Sprintf(format, args...), Do: do})
}

// misfit adds one that is in Config.
func (p *preflight) misfit(kind FindingKind, do, format string, args ...any) {
	p.add(Finding{Kind: kind, Severity: Blocks, What: fmt.Sprintf(format, args...), Do: do, InConfig: true})
}

func (p *preflight) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(preflightBound, p.d.cfg.RequestTimeout))
}

// look looks at everything that can be looked at; what depends on something that is missing is left out, and said.
func (p *preflight) look(ctx context.Context) {
	if !p.controllers(ctx) {
		return
	}
	p.controllerRights(ctx)
	if p.rights.missing(ClusterAction) {
		p.addf(AboutCluster, Warns, "grant ClusterAction and look again", "without ClusterAction on the cluster nothing can be read of its metadata: brokers, listeners, node ids and settings were not looked at")
		return
	}
	bounded, stop := p.bounded(ctx)
	if p.patient {
		bounded = ctx
	}
	err := p.d.meta.caughtUp(bounded)
	stop()
	if err != nil {
		p.addf(AboutControllers, Blocks, "look at the controllers' logs", "the cluster's metadata does not come: %v", err)
		return
	}
	p.features()
	p.namedControllers()
	listener := p.interBrokerListener()
	if listener {
		p.reachBrokers(ctx)
		p.brokerRights(ctx)
	}
	p.nodeID()
	p.ownListener(ctx)
	p.clientsListener(ctx)
	p.logins()
	p.settings()
}

// controllers asks each named one who it is.
func (p *preflight) controllers(ctx context.Context) (any bool) {
	cfg := &p.d.cfg
	answers, errs := make([]*kmsg.ApiVersionsResponse, len(cfg.Controllers)), make([]error, len(cfg.Controllers))
	var wg sync.WaitGroup
	for i := range cfg.Controllers {
		wg.Go(func() {
			bounded, stop := p.bounded(ctx)
			defer stop()
			resp, err := p.d.client.At(bounded, i, versionsRequest())
			if err == nil {
				answers[i] = resp.(*kmsg.ApiVersionsResponse)
				err = kerr.ErrorForCode(answers[i].ErrorCode)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	good := 0
	for i, address := range cfg.Controllers {
		switch {
		case errs[i] != nil:
			p.addf(AboutControllers, Warns, "look at its address, its log and ControllerOptions (TLS, SASL)", "controller %s does not answer: %v", address, errs[i])
		case !slices.ContainsFunc(answers[i].ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == int16(kmsg.BrokerRegistration) }):
			p.misfit(AboutControllers, "name the controllers' own listener (controller.listener.names)", "%s is not a controller's listener: it takes no registrations of brokers", address)
		default:
			good++
			if p.versions == nil || answers[i].FinalizedFeaturesEpoch > p.versions.FinalizedFeaturesEpoch {
				p.versions = answers[i]
			}
		}
	}
	if good == 0 {
		p.addf(AboutControllers, Blocks, "reach at least one; the others are found only by Config.Controllers", "none of the controllers %v can be used", cfg.Controllers)
		return false
	}
	if good == len(cfg.Controllers) {
		p.addf(AboutControllers, Fine, "", "%d of %d answer", good, len(cfg.Controllers))
	}
	return true
}

// namedControllers says which controllers Config.Controllers does not know.
func (p *preflight) namedControllers() {
	var all []string
	p.d.meta.look(func(im *clustermetadata.Image) {
		for _, c := range im.Controllers() {
			all = append(all, fmt.Sprint(c.ID))
		}
	})
	if n := len(p.d.cfg.Controllers); n < len(all) {
		p.addf(AboutControllers, Warns, "name all of them in Config.Controllers", "%d controllers are named and %d are registered (%s): when the active one moves to one that is not named, this process is fenced", n, len(all), strings.Join(all, ", "))
	}
}

// oldestMetadataVersion is the lowest metadata.version that this package was tried with (Apache Kafka 3.9).
const oldestMetadataVersion = 21

// features compares the finalized levels with what was tried.
func (p *preflight) features() {
	levels := map[string]int16{}
	for _, f := range p.versions.FinalizedFeatures {
		levels[f.Name] = f.MaxVersionLevel
	}
	p.d.meta.look(func(im *clustermetadata.Image) { maps.Copy(levels, im.Features()) })
	good := true
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		level := levels[name]
		highest, known := highestTested[name]
		switch {
		case level == 0 || known && level <= highest:
			continue
		case p.d.cfg.UntestedVersion:
			p.addf(AboutVersions, Warns, "", "the cluster's feature %s is at level %d, this version was tried up to %d; UntestedVersion lets it in: registration, creation, take-over and hand-over were not tried there", name, level, highest)
		default:
			p.misfit(AboutVersions, "use a newer version of this program, or set UntestedVersion after you have tried it", "the cluster's feature %s is at level %d, this version was tried up to %d", name, level, highest)
		}
		good = false
	}
	if mv := levels["metadata.version"]; mv < oldestMetadataVersion {
		p.misfit(AboutVersions, "upgrade the cluster to Apache Kafka 3.9 or later, and its metadata.version (kafka-features upgrade)", "metadata.version is %d, the lowest that was tried is %d", mv, oldestMetadataVersion)
		good = false
	}
	if good {
		p.addf(AboutVersions, Fine, "", "metadata.version is %d, at most %d was tried", levels["metadata.version"], highestTested["metadata.version"])
	}
}

// interBrokerListener looks at the listener that will be registered.
func (p *preflight) interBrokerListener() bool {
	var name string
	var err error
	p.d.meta.look(func(im *clustermetadata.Image) { name, _, err = p.d.brokerListener(im) })
	if err != nil {
		p.add(Finding{Kind: AboutListener, Severity: Blocks, What: err.Error(), InConfig: !errors.Is(err, errNoBrokers)})
		return false
	}
	p.addf(AboutListener, Fine, "", "%s, %s", name, p.d.cfg.Security.Protocol)
	return true
}

// nodeID looks at who is registered under it. A registration of ours has the log directory that every process under this node id registers.
func (p *preflight) nodeID() {
	id := p.d.cfg.NodeID
	const other = "choose a NodeID that no broker and no controller has, outside the ranges of every operator's node pools"
	var b clustermetadata.Broker
	var registered, controller bool
	p.d.meta.look(func(im *clustermetadata.Image) {
		b, registered = im.Broker(id)
		controller = slices.ContainsFunc(im.Controllers(), func(c clustermetadata.Controller) bool { return c.ID == id })
	})
	state := "alive"
	if b.Fenced {
		state = "fenced, which is not alive or just starting"
	}
	switch {
	case controller:
		p.misfit(AboutNodeID, other, "%d is a controller's node id", id)
	case !registered:
		p.addf(AboutNodeID, Fine, "", "%d is free", id)
	case p.report.ClusterID == "":
		p.addf(AboutNodeID, Warns, "", "%d is registered (%s); whether by a process of ours is not known, because no broker told the cluster's id", id, state)
	case !slices.Equal(b.LogDirs, [][16]byte{directoryID(p.report.ClusterID, id)}):
		p.misfit(AboutNodeID, other, "another broker is registered as %d (%s; %s): joining would take its place", id, state, listenerText(b))
	case b.Fenced:
		p.addf(AboutNodeID, Fine, "", "%d was ours before, and is not alive", id)
	default:
		p.addf(AboutNodeID, Warns, "", "a process of ours lives under %d (%s), or did until a moment ago: joining waits for its end, at most %s after it died", id, listenerText(b), p.d.cfg.SessionTimeout)
	}
}

func listenerText(b clustermetadata.Broker) string {
	var ls []string
	for _, l := range b.Listeners {
		ls = append(ls, fmt.Sprintf("%s://%s:%d", l.Name, l.Host, l.Port))
	}
	return strings.Join(ls, ", ")
}

// reachBrokers connects to each live broker's listener with BrokerOptions and asks it for its settings.
func (p *preflight) reachBrokers(ctx context.Context) {
	d := p.d
	d.meta.look(func(im *clustermetadata.Image) {
		for _, id := range d.live(im) {
			b, _ := im.Broker(id)
			p.brokers = append(p.brokers, brokerSeen{broker: b})
		}
	})
	var wg sync.WaitGroup
	for i := range p.brokers {
		b := &p.brokers[i]
		wg.Go(func() {
			bounded, stop := p.bounded(ctx)
			defer stop()
			b.cluster, b.err = d.askClusterID(bounded, b.broker.ID)
			if b.err == nil {
				b.configs = p.brokerConfigs(bounded, b.broker.ID)
			}
		})
	}
	wg.Wait()
	ids := map[string][]int32{}
	for _, b := range p.brokers {
		if b.err == nil {
			ids[b.cluster] = append(ids[b.cluster], b.broker.ID)
		}
	}
	if len(ids) == 1 {
		p.report.ClusterID = slices.Collect(maps.Keys(ids))[0]
		d.peers.cluster.Store(&p.report.ClusterID)
		p.brokers = slices.DeleteFunc(p.brokers, func(b brokerSeen) bool { return d.isMirror(b.broker.ID) }) // now they are known; one that has just ended is alive for the controllers
	}
	reached := 0
	for _, b := range p.brokers {
		if b.err != nil {
			p.addf(AboutBrokers, Warns, "this process asks brokers what their copies hold: open the way from here to that listener, and look at BrokerOptions (TLS, SASL)", "%v", b.err)
			continue
		}
		reached++
	}
	switch {
	case len(ids) > 1:
		p.addf(AboutCluster, Blocks, "look at what stands between here and the brokers", "brokers of several clusters answered: %v", ids)
	case len(ids) == 1:
		p.addf(AboutCluster, Fine, "", "its id is %s", p.report.ClusterID)
	}
	switch factor := d.cfg.ReplicationFactor; {
	case reached == 0:
		p.addf(AboutBrokers, Blocks, "start brokers, and open the way from here to their listener", "none of %d live brokers was reached", len(p.brokers))
	case len(p.brokers) < factor:
		p.addf(AboutBrokers, Warns, "start the others, or lower ReplicationFactor", "ReplicationFactor is %d and %d brokers are alive: topics cannot be created", factor, len(p.brokers))
	case reached == len(p.brokers):
		p.addf(AboutBrokers, Fine, "", "%d alive, all of them reached", reached)
	}
	if d.cfg.MinInSyncReplicas > d.cfg.ReplicationFactor {
		p.addf(AboutBrokers, Warns, "lower MinInSyncReplicas", "MinInSyncReplicas is %d and ReplicationFactor %d: every copy has to have a record before it counts as replicated, and a dead broker makes it fewer", d.cfg.MinInSyncReplicas, d.cfg.ReplicationFactor)
	}
}
