package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
)

// spoilers are what -break can do. Each must make a check fail, or the checks are worth nothing.
var spoilers = []string{"byte", "missing", "lost", "skip"}

// spoilDisks damages the files of the cluster that clients use, before they are compared.
func spoilDisks(how string, s *side) error {
	brokers, change := s.Brokers(), (func([][]byte) [][]byte)(nil)
	switch how {
	case "byte": // one bit of a record, on one disk
		brokers = brokers[len(brokers)-1:]
		change = func(all [][]byte) [][]byte {
			b := all[len(all)/2]
			b[len(b)-1] ^= 1
			return all
		}
	case "missing": // one batch in the middle, on one disk
		brokers = brokers[:1]
		change = func(all [][]byte) [][]byte { return slices.Delete(all, len(all)/2, len(all)/2+1) }
	case "lost": // the newest records, on all disks
		change = func(all [][]byte) [][]byte {
			for len(idsIn(all[len(all)-1])) == 0 {
				all = all[:len(all)-1]
			}
			return all[:len(all)-1]
		}
	default:
		return nil
	}
	for _, id := range brokers {
		files, err := filepath.Glob(filepath.Join(s.DataDir(id), partitionName(orders, 0), "*.log"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("broker %d has %d files of %s, %v", id, len(files), partitionName(orders, 0), err)
		}
		log, err := os.ReadFile(files[0])
		if err != nil {
			return err
		}
		if err := os.WriteFile(files[0], slices.Concat(change(batches(log))...), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// spoilGroup moves the group on by some records, before its consumer starts.
func spoilGroup(ctx context.Context, how string, s *side, at map[string]int64) error {
	if how != "skip" {
		return nil
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: orders, Partition: 0, At: at[partitionName(orders, 0)] + 5, LeaderEpoch: -1})
	answers, err := s.Admin().CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = answers.Error()
	}
	return err
}
