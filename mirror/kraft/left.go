package kraft

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// Registration is how a node id stands with the controllers.
type Registration uint8

// The registrations.
const (
	NotRegistered    Registration = iota
	RegisteredFenced              // for longer than raising leader epochs takes: its process is not alive, or just coming or going
	RegisteredAlive               // or it was a moment ago: its session has not ended
)

func (r Registration) String() string {
	return [...]string{"not registered", "registered and fenced: its process is not alive", "alive"}[r]
}

// Remains is what there is of a node id in a cluster.
type Remains struct {
	NodeID    int32
	ClusterID string // "" if no broker told it
	Registration
	Listeners string // where its process is, or was, reached by the brokers
	Stranger  bool   // the registration is of a broker that is no process of this kind
	Resigned  bool   // its last process has resigned: whoever comes under the node id is let in at once
	// Partitions have the node id among their replicas, by topic.
	Partitions []RemainingPartition
	// Kept is what is remembered of topics, and not put back yet, by topic. What other node ids have is among it.
	Kept []KeptTopic
	// InternalTopics are the topics whose name begins with __mirror_, as those in which states, wishes and history are kept; others may be called so too.
	InternalTopics []string
	// Others are the node ids of other processes of this kind that are registered in the cluster.
	Others []int32
	// NextProducerID is the next producer id that the controllers give out: it lies above all mirrored ones, and stays there.
	NextProducerID int64
}

// RemainingPartition is one that has a node id among its replicas.
type RemainingPartition struct {
	mirror.TopicPartition
	Leader        int32 // −1: none, so nobody reads or writes it
	Replicas, ISR []int32
	// Elects is the stock broker that could be elected if the node id went now, −1: none. In a mirrored partition's shape there is none.
	Elects int32
}

// KeptTopic is what will be put back when no mirror process has the topic any more.
type KeptTopic struct {
	Topic    string
	Settings map[string]string // what it will say for itself; "" of a setting: nothing
	Replicas map[int32][]int32 // by partition, replicas that a hand-over left out and that are added again
	Forced   []int32           // partitions that a Force has opened and not finished
	Mirrored bool              // a mirror process has it still: nothing is late
}

// observe connects to a cluster as a process that is not in it, and knows its metadata. The caller closes what it returns. cfg's Folder and Listen are not used.
func observe(ctx context.Context, cfg Config) (*Destination, error) {
	cfg.Folder, cfg.Listen = cmp.Or(cfg.Folder, "unused"), cmp.Or(cfg.Listen, "unused")
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := newDestination(cfg)
	if err = d.connect(); err == nil {
		err = d.meta.caughtUp(ctx)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Left says what a cluster has of a node id, without being it: it connects as Force does, and changes nothing. cfg is the node's Config. Its process may be alive.
func Left(ctx context.Context, cfg Config) (Remains, error) {
	d, err := observe(ctx, cfg)
	if err != nil {
		return Remains{}, err
	}
	defer d.Close()
	return d.remains(ctx)
}

// remains is all that Remains says.
func (d *Destination) remains(ctx context.Context) (Remains, error) {
	cluster := d.learnCluster(ctx)
	b, _, err := d.watchFenced(ctx, fencedFor)
	if err != nil {
		return Remains{}, err
	}
	r := d.shown(cluster, b)
	if r.Registration != NotRegistered {
		if _, r.Resigned, err = d.resigned(ctx, b, false); err != nil {
			return r, fmt.Errorf("kraft: whether the process of broker %d has resigned: %w", d.cfg.NodeID, err)
		}
	}
	r.Kept, err = d.keptTopics(ctx)
	return r, err
}

// shown is what the metadata tells of Remains, of a registration that was seen.
func (d *Destination) shown(cluster string, b clustermetadata.Broker) Remains {
	r := Remains{NodeID: d.cfg.NodeID, ClusterID: cluster}
	switch {
	case b.Epoch < 0:
	case b.Fenced:
		r.Registration = RegisteredFenced
	default:
		r.Registration = RegisteredAlive
	}
	if r.Registration != NotRegistered {
		r.Listeners = listenerText(b)
		r.Stranger = r.ClusterID != "" && !slices.Equal(b.LogDirs, [][16]byte{directoryID(r.ClusterID, d.cfg.NodeID)})
	}
	d.meta.look(func(im *clustermetadata.Image) {
		r.NextProducerID = im.NextProducerID()
		for _, p := range im.PartitionsOf(d.cfg.NodeID) {
			r.Partitions = append(r.Partitions, RemainingPartition{
				TopicPartition: mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}, Leader: p.Leader, Replicas: p.Replicas, ISR: p.ISR, Elects: d.heir(im, p),
			})
		}
		for _, b := range im.Brokers() {
			if b.ID != d.cfg.NodeID && d.peers.mirror(im, b.ID) {
				r.Others = append(r.Others, b.ID)
			}
		}
		for _, topic := range im.Topics() {
			if strings.HasPrefix(topic, "__mirror_") {
				r.InternalTopics = append(r.InternalTopics, topic)
			}
		}
	})
	slices.SortFunc(r.Partitions, func(a, b RemainingPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return r
}

// watchFenced watches the registration under the node id for as long as one stays fenced, and no longer than that. It returns it as it was seen last, and whether it stayed: a process that raises
// leader epochs, or that comes or goes, is fenced for moments.
func (d *Destination) watchFenced(ctx context.Context, long time.Duration) (b clustermetadata.Broker, stayed bool, err error) {
	if b = d.registration(); b.Epoch < 0 || !b.Fenced {
		return b, false, nil
	}
	watching, stop := context.WithTimeout(ctx, long)
	defer stop()
	err = d.meta.wait(watching, "its process to show", func(im *clustermetadata.Image) bool {
		now, ok := im.Broker(d.cfg.NodeID)
		return !ok || !now.Fenced || now.Epoch != b.Epoch
	})
	switch {
	case ctx.Err() != nil:
		return b, false, ctx.Err()
	case err == nil:
		seen := b
		if b = d.registration(); b.Epoch >= 0 && b.Epoch != seen.Epoch { // another process has come
			b.Fenced = false
		}
		return b, false, nil
	case watching.Err() == nil:
		return b, false, err
	}
	// Nothing may have come because the metadata did not.
	if err := d.meta.caughtUp(ctx); err != nil {
		return b, false, err
	}
	now := d.registration()
	return now, now.Fenced && now.Epoch == b.Epoch, nil
}

// gone is nil if no process lives under the node id. A registration has to stay fenced for a session where something is to be done, or where its process has resigned and a successor may be
// under way; for longer than raising leader epochs takes where one only looks. Whoever is to do something takes away what that process has left to a successor: nobody comes by it then.
func (d *Destination) gone(ctx context.Context, toAct bool) error {
	long := d.cfg.SessionTimeout
	if b := d.registration(); !toAct && b.Epoch >= 0 && b.Fenced {
		_, is, err := d.resigned(ctx, b, false)
		if err != nil {
			return fmt.Errorf("kraft: whether the process of broker %d has resigned: %w", d.cfg.NodeID, err)
		}
		if !is {
			long = fencedFor
		}
	}
	b, stayed, err := d.watchFenced(ctx, long)
	switch {
	case err != nil:
		return err
	case b.Epoch < 0:
	case !stayed:
		return d.lives()
	case toAct:
		if err := d.forgetResignation(ctx, math.MaxInt64); err != nil {
			return err
		}
	}
	d.goneEpoch.Store(b.Epoch)
	return d.stillGone()
}

// stillGone is nil if the registration is as it was when gone found nobody there, or is gone itself.
func (d *Destination) stillGone() error {
	if b := d.registration(); b.Epoch >= 0 && (!b.Fenced || b.Epoch != d.goneEpoch.Load()) {
		return d.lives()
	}
	return nil
}

func (d *Destination) lives() error {
	return fmt.Errorf("kraft: mirror process %d is alive (or was a moment ago: its session ends %s after its last heartbeat, or it is just coming or going); stop the topics through it, or end it first", d.cfg.NodeID, d.cfg.SessionTimeout)
}

// learnCluster is the cluster's id as the first live broker that answers tells it, "" if none does. Mirror processes are known by it.
func (d *Destination) learnCluster(ctx context.Context) string {
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	d.meta.look(func(im *clustermetadata.Image) { d.membership.listener, _, _ = d.brokerListener(im) })
	for _, broker := range d.liveBrokers() {
		if id, err := d.askClusterID(bounded, broker); err == nil {
			d.peers.cluster.Store(&id)
			d.cluster = id
			return id
		}
	}
	return ""
}

// heir is the stock broker that the controllers could elect for a partition if this node id went now, −1 for none (Kafka: PartitionChangeBuilder).
func (d *Destination) heir(im *clustermetadata.Image, p clustermetadata.Partition) int32 {
	if p.Leader >= 0 && p.Leader != d.cfg.NodeID {
		return p.Leader
	}
	may := slices.Concat(p.ISR, p.ELR)
	if mayElectUncleanly(im, p.Topic) {
		may = slices.Concat(may, p.Replicas)
	}
	live := d.live(im)
	for _, id := range may {
		if slices.Contains(live, id) {
			return id
		}
	}
	return -1
}

// keptTopics is what is remembered of topics that there are.
func (d *Destination) keptTopics(ctx context.Context) ([]KeptTopic, error) {
	all, err := d.remembered.all(ctx)
	if err != nil {
		return nil, err
	}
	var kept []KeptTopic
	for _, topic := range slices.Sorted(maps.Keys(all)) {
		m := all[topic]
		t, ok := d.topic(topic)
		if !ok || t.ID != m.TopicID && !m.creating() {
			continue
		}
		k := KeptTopic{Topic: topic, Replicas: m.LeftOut, Forced: slices.Sorted(maps.Keys(m.Forced))}
		for name, value := range m.Configs {
			if k.Settings == nil {
				k.Settings = map[string]string{}
			}
			k.Settings[name] = ""
			if value != nil {
				k.Settings[name] = *value
			}
		}
		for n := range t.Partitions {
			p, err := d.partition(mirror.TopicPartition{Topic: topic, Partition: n})
			k.Mirrored = k.Mirrored || err == nil && d.mirrored(p.Replicas)
		}
		if len(k.Settings)+len(k.Replicas)+len(k.Forced) > 0 {
			kept = append(kept, k)
		}
	}
	return kept, nil
}

// Depart does what Destination.Leave does for a node id whose process is gone: it puts back what is late, and ends the registration. What stays is Remains.Stays. It refuses while a process lives
// under the node id, for which it watches a registration for a session, and while it has partitions, and names them. It returns what there was before. cfg is the node's Config; Folder and Listen are not used.
func Depart(ctx context.Context, cfg Config) (Remains, error) {
	d, err := observe(ctx, cfg)
	if err != nil {
		return Remains{}, err
	}
	defer d.Close()
	r, err := d.remains(ctx)
	switch {
	case err != nil:
		return r, err
	case r.Stranger:
		return r, fmt.Errorf("kraft: broker %d (%s) is no process of this kind: look at the node id", r.NodeID, r.Listeners)
	case r.Registration == RegisteredAlive:
		return r, fmt.Errorf("%w (%s)", d.lives(), r.Listeners)
	case len(r.Partitions) > 0:
		var held []string
		for _, p := range r.Partitions {
			held = append(held, fmt.Sprintf("%s-%d", p.Topic, p.Partition))
		}
		return r, fmt.Errorf("kraft: broker %d still has %d partitions (%s); stop or delete their topics first", r.NodeID, len(held), shortList(held))
	}
	d.tidyOnce(ctx)
	left, err := d.leftBehind(ctx)
	if err != nil {
		return r, err
	}
	if len(left) > 0 {
		return r, fmt.Errorf("kraft: what broker %d has changed cannot be put back yet: %s; try again when the cluster is well", r.NodeID, shortList(left))
	}
	if err := d.gone(ctx, true); err != nil {
		return r, err
	}
	if err := d.forgetResignation(ctx, math.MaxInt64); err != nil { // also one that is another registration's
		return r, err
	}
	if err := d.meta.caughtUp(ctx); err != nil {
		return r, err
	}
	if err := d.stillGone(); err != nil {
		return r, err
	}
	return r, d.unregister(ctx)
}

// Stays is what the cluster has of the node id when it has left, for people, one line.
func (r Remains) Stays() string {
	topics := "no topics of states, wishes and history"
	if len(r.InternalTopics) > 0 {
		topics = "states, wishes and history (" + strings.Join(r.InternalTopics, ", ") + "; a purge deletes them)"
	}
	return fmt.Sprintf("%s, and the next producer id %d, which stays above those that were mirrored", topics, r.NextProducerID)
}

// Late are the Kept topics that no mirror process has any more: a process under the node id puts them back within seconds, another Force does too.
func (r Remains) Late() []KeptTopic {
	return slices.DeleteFunc(slices.Clone(r.Kept), func(k KeptTopic) bool { return k.Mirrored })
}

// String is for people, several lines.
func (r Remains) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "broker %d of cluster %s: %s", r.NodeID, cmp.Or(r.ClusterID, "(no broker tells its id)"), r.Registration)
	if r.Listeners != "" {
		fmt.Fprintf(&b, " (%s)", r.Listeners)
	}
	b.WriteByte('\n')
	switch {
	case r.Stranger:
		b.WriteString("  it is no process of this kind: another broker has this node id\n")
	case r.Resigned:
		b.WriteString("  its process has resigned: whoever starts under this node id is let in at once\n")
	}
	fmt.Fprintf(&b, "  replica of %d partitions\n", len(r.Partitions))
	for _, p := range r.Partitions {
		led := fmt.Sprintf("broker %d leads it", p.Leader)
		switch {
		case p.Leader == r.NodeID:
			led = "it leads it"
		case p.Leader < 0:
			led = "nobody leads it: nobody reads or writes it"
		}
		fmt.Fprintf(&b, "    %s-%d: %s; in sync %v, replicas %v\n", p.Topic, p.Partition, led, p.ISR, p.Replicas)
	}
	for _, k := range r.Kept {
		when := "when it is stopped"
		if !k.Mirrored {
			when = "late: no mirror process has the topic any more"
		}
		fmt.Fprintf(&b, "  topic %s, to be put back (%s):", k.Topic, when)
		for _, name := range slices.Sorted(maps.Keys(k.Settings)) {
			fmt.Fprintf(&b, " %s=%s", name, cmp.Or(k.Settings[name], "(none of its own)"))
		}
		for _, n := range slices.Sorted(maps.Keys(k.Replicas)) {
			fmt.Fprintf(&b, " replicas %v of partition %d", k.Replicas[n], n)
		}
		if len(k.Forced) > 0 {
			fmt.Fprintf(&b, " partitions %v were forced and are not finished", k.Forced)
		}
		b.WriteByte('\n')
	}
	if len(r.InternalTopics) > 0 {
		fmt.Fprintf(&b, "  states, wishes and history: %s\n", strings.Join(r.InternalTopics, ", "))
	}
	if len(r.Others) > 0 {
		fmt.Fprintf(&b, "  other mirror processes in this cluster: %v\n", r.Others)
	}
	fmt.Fprintf(&b, "  next producer id %d: it stays above those that were mirrored\n", r.NextProducerID)
	return b.String()
}
