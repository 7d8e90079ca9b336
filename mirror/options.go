package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// LossPolicy is what happens when the source's log starts beyond the copy's end: records were removed before they were copied (spec decision 16).
// The lost range is an event and stays in the status in each case.
type LossPolicy uint8

// The loss policies.
const (
	LossRestart LossPolicy = iota // the copy starts where the source's log now starts (KIP-1279's way, the default)
	LossFail                      // the partition is FAILED at its end until a person decides
	LossKeep                      // older records stay; the copy goes on behind a reported hole, in which the end of a transaction may be lost (the report says so)
)

// RetryPolicy says when failed partitions are tried again; its zero value is 1 s doubling to 300 s, without end.
type RetryPolicy = statemachine.RetryPolicy

// Config is what a Mirror is made of. Name, Source, Destination, Store and Sink must be set; zero values elsewhere are the defaults in brackets.
type Config struct {
	// Name of the mirror: 1–249 ASCII letters, digits, '.', '_', '-', not ending in .stopped, .paused or .removed.
	Name string
	// Source and Destination are the caller's: Close of the Mirror does not close them.
	Source      Source
	Destination Destination
	// OpenSource, instead of Source, opens the source from the settings that the Control holds of this mirror (kafkasource.FromSettings). The Mirror closes what it opened, and
	// opens anew when a connection setting is altered.
	OpenSource func(ctx context.Context, settings Settings) (Source, error)
	// Store keeps partition states. Owner is the name under which it is opened, and which the partitions' records belong to: a second process that opens the same name takes this
	// one's place and fences it [Name]. Two mirrors in one store need two owners.
	Store statemachine.StateStore
	Owner string
	// Node is the machine or service that this process is a part of, to be shown where it is reported [the Owner]. It decides nothing.
	Node string
	// Version of the program, to be shown beside it [as it was built: the module's version, or the commit].
	Version string
	// TakeFrom are owners that are gone for good, and whose partitions of this mirror become this owner's: a process that still runs under such a name is fenced. Without
	// it partitions of another owner are refused by name, and not served [none].
	TakeFrom []string
	// Control holds the desired state, and what metadata sync remembers [a new NewMemoryControl(), with which a restart takes groups over as at the beginning].
	Control Control
	// Sink is handed records before a truncation drops them. There is no default: name Discard to drop them.
	Sink Sink
	// SourceClusterID pins the source; another id is refused [the first one seen].
	SourceClusterID string

	Loss  LossPolicy
	Retry RetryPolicy
	Fetch FetchOptions
	// FetchersPerBroker is the number of connections per source broker [1] (mirror.num.replica.fetchers).
	FetchersPerBroker int
	// RefreshInterval is how often metadata of the source is looked at [30 s] (mirror.metadata.refresh.interval.ms).
	RefreshInterval time.Duration
	// FetchBackoff is the pause after a fetch error [1 s] (mirror.fetch.backoff.ms).
	FetchBackoff time.Duration
	// CallBound is the longest a single call to source, destination or store may take [10 s].
	CallBound time.Duration
	// ReplicaWait bounds the wait for replicas at stop [10 s]; what they do not confirm by then is cut and reported.
	ReplicaWait time.Duration
	// WatchdogAfter is how long a partition may stand still while the source is ahead [60 s].
	WatchdogAfter time.Duration
	// OldSourceInterval is how often the cluster that stopped topics were copied from is looked at: whether it has come back, and whether somebody writes there [30 s]; negative: never.
	OldSourceInterval time.Duration
	// MaxBatch is the destination's limit for one batch in bytes [none].
	MaxBatch int32
	// StartFloor: the copy's log start never follows the source's above it [none].
	StartFloor int64
	// FetchRate is how many bytes of batches this process receives from the source in a second, over all its brokers [no limit] (mirror.replication.throttled.rate). It delays
	// copying only: no stop, failover, status or Close waits for it.
	FetchRate int64
	// SharedRate is a limit that this mirror keeps together with others that are given the same value, beside FetchRate [none]. A node has one for its mirrors (mirror.node.throttled.rate).
	SharedRate *SharedRate
	// Verifier compares copies with the source at the end of a failback, for VerifyBound at most [1 min]; it holds nothing up before that, and what it finds undoes nothing. Package mirror/verify
	// has one [none: the report says that nothing was verified].
	Verifier    Verifier
	VerifyBound time.Duration
	// VerifyRate is how many bytes in a second, of both sides together, are read to compare copies with the source again and again while they are mirrored; the Verifier has to be a
	// ContinuousVerifier [0: that is not done]. Copying comes first: nothing is compared while it is held back or behind. VerifyInterval is how often each copy is compared, if the rate lets it [24 h].
	VerifyRate     int64
	VerifyInterval time.Duration
	// Seed of the jitter in retries [from the clock].
	Seed uint64

	// Logger receives every event [none].
	Logger *slog.Logger
	// OnEvent is called for every event, one at a time, in order. It must not block and must not call the Mirror.
	OnEvent func(Event)
}

func (c *Config) complete() error {
	var errs []error
	if err := statemachine.CheckMirrorName(c.Name); err != nil {
		errs = append(errs, err)
	}
	if (c.Source == nil) == (c.OpenSource == nil) {
		errs = append(errs, errors.New("exactly one of Config.Source and Config.OpenSource has to be set"))
	}
	if c.Destination == nil {
		errs = append(errs, errors.New("Config.Destination is not set"))
	}
	if c.Store == nil {
		errs = append(errs, errors.New("Config.Store is not set: &statemachine.MemoryStore{} forgets with the process"))
	}
	if c.Sink == nil {
		errs = append(errs, errors.New("Config.Sink is not set: it is handed records before a truncation drops them; mirror.Discard drops them"))
	}
	for _, owner := range append([]string{c.Owner}, c.TakeFrom...) {
		if strings.HasPrefix(owner, reporterPrefix) {
			errs = append(errs, fmt.Errorf("owner %q begins with %q, which is kept for reports", owner, reporterPrefix))
		}
	}
	if c.Loss > LossKeep {
		errs = append(errs, fmt.Errorf("loss policy %d is none of LossRestart, LossFail and LossKeep", c.Loss))
	}
	if c.FetchRate < 0 {
		errs = append(errs, fmt.Errorf("FetchRate is negative: %d bytes/s", c.FetchRate))
	}
	if c.VerifyRate < 0 {
		errs = append(errs, fmt.Errorf("VerifyRate is negative: %d bytes/s", c.VerifyRate))
	}
	if _, able := c.Verifier.(ContinuousVerifier); c.VerifyRate > 0 && !able {
		errs = append(errs, errors.New("VerifyRate needs a Verifier that compares again and again, as package mirror/verify has one"))
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		or    time.Duration
	}{
		{"RefreshInterval", &c.RefreshInterval, 30 * time.Second},
		{"FetchBackoff", &c.FetchBackoff, time.Second},
		{"CallBound", &c.CallBound, 10 * time.Second},
		{"ReplicaWait", &c.ReplicaWait, 10 * time.Second},
		{"WatchdogAfter", &c.WatchdogAfter, time.Minute},
		{"VerifyBound", &c.VerifyBound, time.Minute},
		{"VerifyInterval", &c.VerifyInterval, 24 * time.Hour},
	} {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is negative", d.name))
		}
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("mirror: config: %w", errors.Join(errs...))
	}
	c.OldSourceInterval = cmp.Or(c.OldSourceInterval, 30*time.Second)
	if c.Owner == "" {
		c.Owner = c.Name
	}
	if c.Version == "" {
		c.Version = builtVersion()
	}
	if c.Control == nil {
		c.Control = NewMemoryControl()
	}
	if c.FetchersPerBroker <= 0 {
		c.FetchersPerBroker = 1
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (c *Config) core(tp TopicPartition, id TopicID, seed uint64) partition.Config {
	return partition.Config{
		Mirror: c.Name, Topic: tp.Topic, Partition: tp.Partition, TopicID: id, SourceCluster: c.SourceClusterID,
		Retry: c.Retry, FetchBackoff: c.FetchBackoff,
		ReplicaWait: c.ReplicaWait, MaxBatch: c.MaxBatch, Seed: c.Seed ^ seed,
	}
}
