package clustermetadata

import (
	"maps"
	"slices"

	"github.com/clustermirror/clustermirror/statemachine"
)

// replay does what a record says. It changes the image only when the whole record was read and agrees with it; what does not is put into rec.
func (im *Image) replay(rec *record, s *changes) {
	if rec.why != "" {
		return
	}
	s.offset = rec.offset
	switch rec.kind {
	case registerBroker:
		im.replayRegisterBroker(rec, s)
	case unregisterBroker:
		id := rec.int32()
		rec.int64() // broker epoch: Kafka does not look at it (ClusterDelta)
		rec.tags(nil)
		if rec.end() {
			im.setBroker(id, nil, s)
		}
	case fenceBroker, unfenceBroker:
		id, epoch := rec.int32(), rec.int64()
		rec.tags(nil)
		im.changeBroker(rec, id, epoch, s, func(b *Broker) { b.Fenced = rec.kind == fenceBroker })
	case brokerRegistrationChange:
		im.replayRegistrationChange(rec, s)
	case topicRecord:
		name, id := rec.text(), rec.topicID()
		rec.tags(nil)
		if !rec.end() {
			return
		}
		if _, ok := im.ids[name]; ok || im.topics[id] != nil {
			rec.fail("there is a topic of this name or id already")
			return
		}
		im.addTopic(name, id, s)
	case removeTopic:
		id := rec.topicID()
		rec.tags(nil)
		if !rec.end() {
			return
		}
		if im.topics[id] == nil {
			rec.fail("there is no topic of this id")
			return
		}
		im.dropTopic(im.topics[id], s)
	case partitionRecord:
		im.replayPartition(rec, s)
	case partitionChange:
		im.replayPartitionChange(rec, s)
	case clearELR:
		im.replayClearELR(rec, s)
	case configRecord:
		of := resource{kind: ResourceType(rec.int8()), name: rec.text()}
		key := rec.text()
		value, gone := rec.nullableText()
		rec.tags(nil)
		if rec.end() && (of.kind == TopicResource || of.kind == BrokerResource) {
			im.setConfig(of, key, value, gone, s)
		}
	case userScramCredential:
		user := scramUser{name: rec.text(), mechanism: rec.int8()}
		c := ScramCredential{Salt: rec.blob(), StoredKey: rec.blob(), ServerKey: rec.blob(), Iterations: rec.int32()}
		rec.tags(nil)
		if rec.end() {
			im.setScram(user, &c, s)
		}
	case removeUserScram:
		user := scramUser{name: rec.text(), mechanism: rec.int8()}
		rec.tags(nil)
		if rec.end() {
			im.setScram(user, nil, s)
		}
	case featureLevel:
		name, level := rec.text(), rec.int16()
		rec.tags(nil)
		if rec.end() {
			im.setFeature(name, level, s)
		}
	case producerIDs:
		rec.int32() // broker
		rec.int64() // its epoch
		next := rec.int64()
		rec.tags(nil)
		if rec.end() {
			im.setProducerID(next, s)
		}
	case registerController:
		c := Controller{ID: rec.int32()}
		rec.uuid() // incarnation
		rec.bool() // ready for the migration from ZooKeeper
		c.Listeners = readListeners(rec)
		readFeatures(rec)
		rec.tags(nil)
		if rec.end() {
			im.setController(c.ID, &c, s)
		}
	case unregisterController:
		id := rec.int32()
		rec.tags(nil)
		if rec.end() {
			im.setController(id, nil, s)
		}
	}
}

// Brokers and controllers.

func (im *Image) replayRegisterBroker(rec *record, s *changes) {
	b := Broker{ID: rec.int32()}
	if rec.version >= 2 {
		rec.bool() // a ZooKeeper broker that migrates
	}
	b.Incarnation, b.Epoch = rec.uuid(), rec.int64()
	b.Listeners, b.Features = readListeners(rec), readFeatures(rec)
	b.Rack, _ = rec.nullableText()
	b.Fenced = rec.bool()
	if rec.version >= 1 {
		b.InControlledShutdown = rec.bool()
	}
	rec.tags(func(tag int, value *reader) bool {
		switch tag {
		case 0:
			b.LogDirs = value.uuids()
		case 1:
			b.CordonedLogDirs, _ = value.nullableUUIDs()
		default:
			return false
		}
		return true
	})
	if rec.end() {
		im.setBroker(b.ID, &b, s)
	}
}

func readListeners(rec *record) []Listener {
	n := rec.count(7)
	var all []Listener
	for range n {
		all = append(all, Listener{Name: rec.text(), Host: rec.text(), Port: rec.uint16(), SecurityProtocol: rec.int16()})
		rec.tags(nil)
	}
	return all
}

func readFeatures(rec *record) map[string][2]int16 {
	n := rec.count(6)
	all := make(map[string][2]int16, n)
	for range n {
		name := rec.text()
		all[name] = [2]int16{rec.int16(), rec.int16()}
		rec.tags(nil)
	}
	return all
}

func (im *Image) replayRegistrationChange(rec *record, s *changes) {
	id, epoch := rec.int32(), rec.int64()
	var fenced, shutdown int8 // 0: no change
	var dirs, cordoned [][16]byte
	cordonedSame := true
	rec.tags(func(tag int, value *reader) bool {
		switch tag {
		case 0:
			fenced = value.int8()
		case 1:
			shutdown = value.int8()
		case 2:
			dirs = value.uuids()
		case 3:
			cordoned, cordonedSame = value.nullableUUIDs()
		default:
			return false
		}
		return true
	})
	if fenced < -1 || fenced > 1 || shutdown < 0 || shutdown > 1 {
		rec.fail("a change of state is none that is known")
	}
	im.changeBroker(rec, id, epoch, s, func(b *Broker) {
		if fenced != 0 {
			b.Fenced = fenced == 1
		}
		if shutdown == 1 { // only a new registration ends it
			b.InControlledShutdown = true
		}
		if len(dirs) > 0 {
			b.LogDirs = dirs
		}
		if !cordonedSame {
			b.CordonedLogDirs = cordoned
		}
	})
}

// changeBroker applies change to a copy of the broker, which must have this epoch.
func (im *Image) changeBroker(rec *record, id int32, epoch int64, s *changes, change func(*Broker)) {
	if !rec.end() {
		return
	}
	b, ok := im.brokers[id]
	if !ok || b.Epoch != epoch {
		rec.fail("no broker of this id and epoch is registered")
		return
	}
	change(&b)
	im.setBroker(id, &b, s)
}

// setBroker registers a broker, nil unregisters it.
func (im *Image) setBroker(id int32, b *Broker, s *changes) {
	old, known := im.brokers[id]
	if b == nil && !known || b != nil && known && b.equal(old) {
		return
	}
	if b == nil {
		delete(im.brokers, id)
	} else {
		im.brokers[id] = *b
	}
	s.add(Change{Kind: BrokerChanged, Broker: id})
}

// setController registers a controller, nil unregisters it.
func (im *Image) setController(id int32, c *Controller, s *changes) {
	old, known := im.controllers[id]
	if c == nil && !known || c != nil && known && c.equal(old) {
		return
	}
	if c == nil {
		delete(im.controllers, id)
	} else {
		im.controllers[id] = *c
	}
	s.add(Change{Kind: ControllerChanged, Broker: id})
}

// Topics and partitions.

func (im *Image) addTopic(name string, id statemachine.TopicID, s *changes) *topic {
	t := &topic{name: name, id: id, partitions: map[int32]Partition{}}
	im.topics[id], im.ids[name] = t, id
	s.add(Change{Kind: TopicCreated, Name: name, TopicID: id})
	return t
}

// dropTopic removes a topic with its partitions and its configs.
func (im *Image) dropTopic(t *topic, s *changes) {
	for _, number := range slices.Sorted(maps.Keys(t.partitions)) {
		im.dropPartition(t, number, s)
	}
	of := resource{TopicResource, t.name}
	for _, key := range slices.Sorted(maps.Keys(im.configs[of])) {
		im.setConfig(of, key, "", true, s)
	}
	delete(im.topics, t.id)
	delete(im.ids, t.name)
	s.add(Change{Kind: TopicDeleted, Name: t.name, TopicID: t.id})
}

func (im *Image) replayPartition(rec *record, s *changes) {
	p := Partition{Partition: rec.int32(), TopicID: rec.topicID(), Replicas: rec.nodes(), ISR: rec.nodes(), Removing: rec.nodes(), Adding: rec.nodes(),
		Leader: rec.int32(), LeaderEpoch: rec.int32(), PartitionEpoch: rec.int32()}
	if rec.version >= 1 {
		p.Directories = rec.uuids()
	}
	rec.tags(func(tag int, value *reader) bool {
		switch tag {
		case 0:
			p.Recovering = value.recovering()
		case 1:
			p.ELR, _ = value.nullableNodes()
		case 2:
			p.LastKnownELR, _ = value.nullableNodes()
		default:
			return false
		}
		return true
	})
	if !rec.end() {
		return
	}
	t := im.topics[p.TopicID]
	if t == nil {
		rec.fail("there is no topic of this id")
		return
	}
	p.Topic = t.name
	im.setPartition(rec, t, p, s)
}

// recovering reads a leader recovery state: 0 RECOVERED, 1 RECOVERING.
func (r *reader) recovering() bool {
	state := r.int8()
	if state != 0 && state != 1 {
		r.fail("a leader recovery state is none that is known")
	}
	return state == 1
}

func (im *Image) replayPartitionChange(rec *record, s *changes) {
	const leaderSame = -2 // LeaderConstants.NO_LEADER_CHANGE
	number, id := rec.int32(), rec.topicID()
	leader, state := int32(leaderSame), int8(-1)
	var set []func(p *Partition) // what the fields that are there and not null say
	var replicas, dirs bool      // whether these are there
	nodes := func(value *reader, field func(p *Partition) *[]int32) (there bool) {
		ids, null := value.nullableNodes()
		if !null {
			set = append(set, func(p *Partition) { *field(p) = ids })
		}
		return !null
	}
	rec.tags(func(tag int, value *reader) bool {
		switch tag {
		case 0:
			nodes(value, func(p *Partition) *[]int32 { return &p.ISR })
		case 1:
			leader = value.int32()
		case 2:
			replicas = nodes(value, func(p *Partition) *[]int32 { return &p.Replicas })
		case 3:
			nodes(value, func(p *Partition) *[]int32 { return &p.Removing })
		case 4:
			nodes(value, func(p *Partition) *[]int32 { return &p.Adding })
		case 5:
			if state = value.int8(); state < -1 || state > 1 {
				value.fail("a leader recovery state is none that is known")
			}
		case 6:
			nodes(value, func(p *Partition) *[]int32 { return &p.ELR })
		case 7:
			nodes(value, func(p *Partition) *[]int32 { return &p.LastKnownELR })
		case 8:
			ids, null := value.nullableUUIDs()
			if !null {
				dirs = true
				set = append(set, func(p *Partition) { p.Directories = ids })
			}
		default:
			return false
		}
		return true
	})
	if !rec.end() {
		return
	}
	t := im.topics[id]
	if t == nil {
		rec.fail("there is no topic of this id")
		return
	}
	old, ok := t.partitions[number]
	if !ok {
		rec.fail("the topic has no such partition")
		return
	}
	p := old
	for _, f := range set {
		f(&p)
	}
	if leader != leaderSame {
		p.Leader = leader
		p.LeaderEpoch++
	}
	if state >= 0 {
		p.Recovering = state == 1
	}
	if replicas && !dirs {
		p.Directories = directoriesOf(p.Replicas, old)
	}
	p.PartitionEpoch++
	im.setPartition(rec, t, p, s)
}

// directoriesOf are the directories of replicas where a record names only the replicas: who stays keeps its own, of a new one none is known.
func directoriesOf(replicas []int32, old Partition) [][16]byte {
	if len(old.Directories) == 0 || slices.Equal(replicas, old.Replicas) {
		return old.Directories
	}
	dirs := make([][16]byte, len(replicas))
	for i, r := range replicas {
		if at := slices.Index(old.Replicas, r); at >= 0 {
			dirs[i] = old.Directories[at]
		}
	}
	return dirs
}

// replayClearELR empties the ELRs of one topic, or of all. That is a change of the partitions like any other (Kafka: TopicDelta).
func (im *Image) replayClearELR(rec *record, s *changes) {
	name := rec.text()
	rec.tags(nil)
	if !rec.end() {
		return
	}
	names := []string{name}
	if name == "" {
		names = im.Topics()
	} else if _, ok := im.ids[name]; !ok {
		rec.fail("there is no topic of this name")
		return
	}
	for _, name := range names {
		t := im.topics[im.ids[name]]
		for _, number := range slices.Sorted(maps.Keys(t.partitions)) {
			p := t.partitions[number]
			if len(p.ELR) == 0 && len(p.LastKnownELR) == 0 {
				continue
			}
			p.ELR, p.LastKnownELR = nil, nil
			p.PartitionEpoch++
			im.setPartition(rec, t, p, s)
		}
	}
}

// setPartition puts a partition into its topic, in place of the one before.
func (im *Image) setPartition(rec *record, t *topic, p Partition, s *changes) {
	if p.Partition < 0 || p.Leader < -1 || len(p.Directories) > 0 && len(p.Directories) != len(p.Replicas) {
		rec.fail("the partition's number, leader or directories cannot be")
		return
	}
	im.putPartition(t, p, s)
}

func (im *Image) putPartition(t *topic, p Partition, s *changes) {
	old, known := t.partitions[p.Partition]
	if known && p.equal(old) {
		return
	}
	im.unhost(old)
	t.partitions[p.Partition] = p
	for _, r := range p.Replicas {
		if im.hosted[r] == nil {
			im.hosted[r] = map[place]bool{}
		}
		im.hosted[r][place{t.id, p.Partition}] = true
	}
	s.add(Change{Kind: PartitionChanged, Before: old, After: p, TopicID: t.id})
}

func (im *Image) dropPartition(t *topic, number int32, s *changes) {
	old := t.partitions[number]
	im.unhost(old)
	delete(t.partitions, number)
	s.add(Change{Kind: PartitionChanged, Before: old, TopicID: t.id})
}

// unhost takes a partition out of the index by broker.
func (im *Image) unhost(p Partition) {
	for _, r := range p.Replicas {
		delete(im.hosted[r], place{p.TopicID, p.Partition})
		if len(im.hosted[r]) == 0 {
			delete(im.hosted, r)
		}
	}
}

// The rest.

// setConfig sets one key of a resource, or takes it away.
func (im *Image) setConfig(of resource, key, value string, gone bool, s *changes) {
	old, known := im.configs[of][key]
	if gone && !known || !gone && known && old == value {
		return
	}
	if gone {
		if delete(im.configs[of], key); len(im.configs[of]) == 0 {
			delete(im.configs, of)
		}
	} else {
		if im.configs[of] == nil {
			im.configs[of] = map[string]string{}
		}
		im.configs[of][key] = value
	}
	s.add(Change{Kind: ConfigChanged, Resource: of.kind, Name: of.name, Key: key})
}

// setFeature finalizes a feature at a level; 0 is none.
func (im *Image) setFeature(name string, level int16, s *changes) {
	if im.features[name] == level {
		return
	}
	if level == 0 {
		delete(im.features, name)
	} else {
		im.features[name] = level
	}
	s.add(Change{Kind: FeatureChanged, Name: name})
}

func (im *Image) setProducerID(next int64, s *changes) {
	if next != im.producerID {
		im.producerID = next
		s.add(Change{Kind: ProducerIDsChanged})
	}
}

// setScram stores a user's credential, nil takes it away.
func (im *Image) setScram(user scramUser, c *ScramCredential, s *changes) {
	old, known := im.scram[user]
	if c == nil && !known || c != nil && known && c.equal(old) {
		return
	}
	if c == nil {
		delete(im.scram, user)
	} else {
		im.scram[user] = *c
	}
	s.add(Change{Kind: ScramChanged, Name: user.name, Mechanism: user.mechanism})
}
