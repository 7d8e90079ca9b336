package logtest

import (
	"context"
	"flag"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// recoverer is a memlog log that knows of itself what its batches say, or what a mistake makes of that.
type recoverer struct {
	mirror.Log
	wrong func(r *recoverer, known *mirror.Recovered)
	last  mirror.Recovered // the answer before
}

func (r *recoverer) Recovered(ctx context.Context) (mirror.Recovered, error) {
	all, err := everything(ctx, r.Log, 1<<20)
	known := mirror.Recovered{From: r.End(), HighestProducerID: mirror.Unknown}
	undecided := map[int64]int64{}
	for h := range batch.All(all) {
		if n := len(known.Epochs); n == 0 || known.Epochs[n-1].Epoch < h.LeaderEpoch {
			known.Epochs = append(known.Epochs, mirror.EpochStart{Epoch: h.LeaderEpoch, Start: h.BaseOffset})
		}
		known.HighestProducerID = max(known.HighestProducerID, h.ProducerID)
		first, open := undecided[h.ProducerID]
		switch {
		case !h.Transactional():
		case !h.Control() && !open:
			undecided[h.ProducerID] = h.BaseOffset
		case h.Control() && open:
			delete(undecided, h.ProducerID)
			if h.NextOffset() > r.Replicated() {
				known.From = min(known.From, first)
			}
		}
	}
	for _, first := range undecided {
		known.From = min(known.From, first)
	}
	known.From = max(known.From, r.Start())
	if r.wrong != nil {
		r.wrong(r, &known)
	}
	r.last = known
	return known, err
}

// recovering makes such logs, with replicas that can be held.
func recovering(wrong func(r *recoverer, known *mirror.Recovered)) Factory {
	return func(t testing.TB) Subject {
		s := mutated(mutant{})(t)
		s.Log, s.SetRemote = &recoverer{Log: s.Log, wrong: wrong}, nil
		return s
	}
}

func TestALogThatRecoversKeepsTheContract(t *testing.T) { Run(t, recovering(nil)) }

// A lower From, Start at last, is right too, and so are fewer epochs with it.
func TestALogThatRecoversLessKeepsTheContract(t *testing.T) {
	checkRecovered(t, recovering(func(r *recoverer, known *mirror.Recovered) {
		known.From = (known.From + r.Start()) / 2
		for n := len(known.Epochs); n > 0 && known.Epochs[n-1].Start >= known.From; n-- {
			known.Epochs = known.Epochs[:n-1]
		}
		known.HighestProducerID += 1000
	}))
}

// TestRecoveredIsFoundWrong: the kit says no to each of these.
func TestRecoveredIsFoundWrong(t *testing.T) {
	for _, set := range [][2]string{{"rapid.nofailfile", "true"}, {"rapid.shrinktime", "0s"}, {"rapid.checks", "5000"}, {"rapid.seed", "1"}} {
		before := flag.Lookup(set[0]).Value.String()
		if err := flag.Set(set[0], set[1]); err != nil {
			t.Fatal(err)
		}
		defer flag.Set(set[0], before)
	}
	for name, wrong := range map[string]func(r *recoverer, known *mirror.Recovered){
		"is read from behind its end":        func(r *recoverer, known *mirror.Recovered) { known.From = r.End() + 1 },
		"is read from below its start":       func(r *recoverer, known *mirror.Recovered) { known.From = r.Start() - 1 },
		"knows of no transaction":            func(r *recoverer, known *mirror.Recovered) { known.From = r.End() },
		"takes what is replicated as stable": func(r *recoverer, known *mirror.Recovered) { known.From = max(known.From, r.Replicated()) },
		"forgets that markers were cut": func(r *recoverer, known *mirror.Recovered) {
			known.From = min(max(known.From, r.last.From, r.Start()), r.End())
		},
		"leaves out the first epoch": func(r *recoverer, known *mirror.Recovered) { known.Epochs = known.Epochs[min(1, len(known.Epochs)):] },
		"leaves out the last epoch":  func(r *recoverer, known *mirror.Recovered) { known.Epochs = known.Epochs[:max(0, len(known.Epochs)-1)] },
		"starts its epochs late": func(r *recoverer, known *mirror.Recovered) {
			for i := range known.Epochs {
				known.Epochs[i].Start++
			}
		},
		"lists epochs backwards": func(r *recoverer, known *mirror.Recovered) {
			if n := len(known.Epochs); n > 1 {
				known.Epochs[0], known.Epochs[n-1] = known.Epochs[n-1], known.Epochs[0]
			}
		},
		"knows one producer id too few": func(r *recoverer, known *mirror.Recovered) { known.HighestProducerID-- },
	} {
		t.Run(name, func(t *testing.T) {
			found(t, func(t testing.TB) { checkRecovered(t, recovering(wrong)) })
		})
	}
}
