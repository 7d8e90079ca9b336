package kafkastore

import (
	"fmt"

	"github.com/clustermirror/clustermirror/internal/topicreader"
)

// StrayError is a record that does not count, because it is not where records of its key belong. Rights are given by topic, so it may be there because somebody tries to do what
// the rights do not allow. It hides nothing and takes nothing back; compaction keeps it until somebody writes a tombstone over it there.
type StrayError struct {
	Topic     string // where it is
	Partition int32
	Offset    int64
	Key       []byte
	Home      string // the topic where records of its key belong, in the partition that the key has there
}

func (e *StrayError) Error() string {
	home := e.Home
	if home == e.Topic {
		home = "another partition of it"
	}
	return fmt.Sprintf("kafkastore: a record at offset %d of %s-%d with key %x does not count: records of that key belong into %s; find out who may write to %s, with: "+
		"kafka-acls.sh --bootstrap-server HOST:PORT --list --topic %s", e.Offset, e.Topic, e.Partition, e.Key, home, e.Topic, e.Topic)
}

// stray judges a record by its place. nil: it counts. statePartitions is in how many partitions keys of states lie.
func (s *Store) stray(k topicreader.Record, statePartitions int32) *StrayError {
	home := s.topicOf(k.Key)
	counts := k.Topic == home
	switch {
	case !counts:
	case isState(k.Key):
		counts = topicreader.CountsInState(k, statePartitions)
	default:
		counts = k.Partition == 0
	}
	if t, ok := recordType(k.Key); counts && ok && t == sessionType {
		_, counts = sessionWriter(k.Key) // without a writer's name it is nobody's
	}
	if counts {
		return nil
	}
	return &StrayError{Topic: k.Topic, Partition: k.Partition, Offset: k.Offset, Key: k.Key, Home: home}
}

// mostNotices bounds what is remembered of notices.
const mostNotices = 10_000

// tell hands each kind of stray in each partition, and each writer whose session record cannot be read, to Config.Notice once. reading is held.
func (s *Store) tell(strays []*StrayError, unreadable []*SessionRecordError) {
	if s.cfg.Notice == nil {
		return
	}
	once := func(what string, err error) {
		if !s.told[what] && len(s.told) < mostNotices {
			s.told[what] = true
			s.cfg.Notice(err)
		}
	}
	for _, e := range strays {
		t, _ := recordType(e.Key)
		once(fmt.Sprintf("%s-%d type %d", e.Topic, e.Partition, t), e)
	}
	for _, e := range unreadable {
		once(fmt.Sprintf("%s at %d", e.Topic, e.Offset), e)
	}
}
