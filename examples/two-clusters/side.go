package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// side is one of the two clusters.
type side struct {
	name string
	*kafkatest.Cluster

	mu    sync.Mutex
	alive int // brokers
}

// starting brokers are neither alive nor dead.
const starting = -1

// startSides starts both clusters at the same time.
func startSides(st *stage, brokers int, place *folder) (east, west *side, err error) {
	east, west = &side{name: "east", alive: starting}, &side{name: "west", alive: starting}
	results := make(chan error, 2)
	for _, s := range []*side{east, west} {
		go func() {
			results <- guard(func() {
				s.Cluster = kafkatest.Start(st.of(s.name), kafkatest.Options{Brokers: brokers, HeapMB: heapMB, Folder: place.in(s.name), Config: map[string]string{
					"replica.fetch.wait.max.ms": "200", "min.insync.replicas": fmt.Sprint(min(2, brokers)),
				}})
				s.running(brokers)
			})
		}()
	}
	for range 2 {
		if e := <-results; e != nil && err == nil {
			err = e
		}
	}
	return east, west, err
}

func (s *side) running(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = n
}

// state says how many brokers run.
func (s *side) state() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.alive == starting:
		return "start"
	case s.alive == 0:
		return "dead"
	}
	return fmt.Sprintf("%d of %d", s.alive, len(s.Brokers()))
}

// die is kill -9 of every broker.
func (s *side) die() {
	for _, id := range s.Brokers() {
		s.Kill(id)
	}
	s.running(0)
}

// comeBack starts every broker with what it has on disk.
func (s *side) comeBack() {
	s.running(starting)
	for _, id := range s.Brokers() {
		s.LaunchBroker(id)
	}
	s.WaitReady()
	s.running(len(s.Brokers()))
}

// topic is one of the topics of the story.
type topic struct {
	name       string
	partitions int32
}

// bytesOnDisk is what the .log files of the topics hold, of each partition those of the fullest broker: the cluster is not asked, so that it is known of a dead one too.
func (s *side) bytesOnDisk() (total int64) {
	if s.Cluster == nil {
		return 0
	}
	for _, t := range topics {
		for p := range t.partitions {
			var most int64
			for _, id := range s.Brokers() {
				files, _ := filepath.Glob(filepath.Join(s.DataDir(id), fmt.Sprintf("%s-%d", t.name, p), "*.log"))
				var held int64
				for _, f := range files {
					if info, err := os.Stat(f); err == nil { // it is only shown
						held += info.Size()
					}
				}
				most = max(most, held)
			}
			total += most
		}
	}
	return total
}
