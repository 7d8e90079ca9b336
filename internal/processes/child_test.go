package processes_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// childVariable holds a place: this binary is a child then.
const childVariable = "CLUSTERMIRROR_PROCESSES_CHILD"

// destinationID is the cluster id of every copy: the processes work for one destination cluster.
const destinationID = "standby"

// order is one line to a child. Do says which fields count.
type order struct {
	Do string
	// open: a mirror of the cluster Seeds. close ends it.
	Mirror, Owner string
	Seeds         []string      `json:",omitempty"`
	RetryAfter    time.Duration `json:",omitempty"` // of failed partitions [200 ms]
	FromSettings  bool          `json:",omitempty"` // the source is opened from the settings of the mirror
	// verb, on Mirror
	Verb     string            `json:",omitempty"`
	Topics   []string          `json:",omitempty"`
	Settings map[string]string `json:",omitempty"`
	Bound    time.Duration     `json:",omitempty"` // of the verb [half of bound]
	Held     string            `json:",omitempty"` // the process stops itself once: before its write is begun, or after it was decided
	// status, log
	Topic     string `json:",omitempty"`
	Partition int32  `json:",omitempty"`
	// failback of Topic
	Back *failback `json:",omitempty"`
}

// held says where a verb's process stops itself.
const (
	beforeTheWrite  = "before the write"
	afterItsDecison = "after the decision"
)

// answer is a child's line.
type answer struct {
	Err        string            `json:",omitempty"`
	Code       mirror.Code       `json:",omitempty"` // of a verb's *mirror.Error
	Done       time.Time         // when the child was done
	Partitions []partitionStatus `json:",omitempty"`
	Troubles   []string          `json:",omitempty"` // of topics
	Fenced     string            `json:",omitempty"`
	Log        copied            `json:",omitzero"`
	Dropped    [2]int64          `json:",omitzero"` // by a failback
	Described  described         `json:",omitzero"`
}

// described is what Admin.Describe says, as far as tests look at it.
type described struct {
	Text       string
	Seen       time.Time // when the mirror's newest process was heard of
	Partitions []describedPartition
}

type describedPartition struct {
	Topic     string
	Partition int32
	State     string
	Reason    string
	SourceEnd string
	End       string
	Lag       string
	Reported  time.Time
}

type partitionStatus struct {
	Topic     string
	Partition int32
	State     string
	Reason    string
	Owner     string
	End       int64
	Halted    bool
}

// copied is what a partition's copy holds.
type copied struct {
	TopicID    mirror.TopicID
	Start, End int64
	Bytes      []byte
	Sum        [sha256.Size]byte
}

// process is what a child is made of.
type process struct {
	records keyedlog.Log
	control mirror.Control
	copies  *memlog.Cluster
	source  *kafkasource.Source
	mirror  *mirror.Mirror
}

// child takes orders until its standard input ends.
func child() {
	var p place
	err := json.Unmarshal([]byte(os.Getenv(childVariable)), &p)
	c := process{copies: memlog.New(memlog.Config{ClusterID: destinationID})}
	ctx := context.Background()
	if err == nil {
		opening, stop := context.WithTimeout(ctx, bound)
		c.records, err = p.open(opening)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	c.control = mirror.NewControl(c.records)
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			a.Err = err.Error()
		} else if err := c.obey(ctx, o, &a); err != nil {
			a.Err = err.Error()
			if e := (*mirror.Error)(nil); errors.As(err, &e) {
				a.Code = e.Code
			}
		}
		a.Done = time.Now()
		if err := answers.Encode(a); err != nil {
			return
		}
	}
	if c.mirror != nil {
		c.mirror.Close()
	}
}

func (c *process) obey(ctx context.Context, o order, a *answer) (err error) {
	ctx, stop := context.WithTimeout(ctx, cmp.Or(o.Bound, bound/2))
	defer stop()
	switch o.Do {
	case "open":
		return c.open(ctx, o)
	case "close":
		err := c.mirror.Close()
		if c.source != nil {
			err = errors.Join(err, c.source.Close())
		}
		return err
	case "verb":
		return c.verb(ctx, o)
	case "status":
		s := c.mirror.Status()
		if s.Fenced != nil {
			a.Fenced = s.Fenced.Error()
		}
		for _, t := range s.Topics {
			if t.Err != nil {
				a.Troubles = append(a.Troubles, t.Topic+": "+t.Err.Error())
			}
			for _, p := range t.Partitions {
				a.Partitions = append(a.Partitions, partitionStatus{Topic: p.Topic, Partition: p.Partition, State: p.State.String(), Reason: p.Reason, End: p.End, Halted: p.Halted,
					Owner: p.Owner.String()})
			}
		}
		return nil
	case "failback":
		return c.failBack(ctx, o, a)
	case "describe":
		return c.describe(ctx, o, &a.Described)
	case "log":
		l, err := c.copies.OpenLog(ctx, mirror.TopicPartition{Topic: o.Topic, Partition: o.Partition})
		if err != nil {
			return err
		}
		topic, err := c.copies.Topic(ctx, o.Topic)
		if err != nil {
			return err
		}
		raw, err := c.copies.RawLog(o.Topic, o.Partition)
		a.Log = copied{TopicID: topic.ID, Start: l.Start(), End: l.End(), Bytes: raw, Sum: sha256.Sum256(raw)}
		return err
	}
	return fmt.Errorf("no such order %q", o.Do)
}

func (c *process) open(ctx context.Context, o order) (err error) {
	retry := cmp.Or(o.RetryAfter, 200*time.Millisecond)
	cfg := mirror.Config{
		Name: o.Mirror, Owner: o.Owner, Destination: c.copies, Store: keyedlog.NewStateStore(c.records), Control: c.control, Sink: mirror.Discard,
		RefreshInterval: time.Second, FetchBackoff: 100 * time.Millisecond, Fetch: mirror.FetchOptions{MaxWait: 200 * time.Millisecond},
		Retry: mirror.RetryPolicy{Initial: retry, Max: retry},
		OnEvent: func(e mirror.Event) {
			fmt.Fprintf(os.Stderr, "%s %v\n", e.Where().Time.Format("05.000"), e)
		},
	}
	if o.FromSettings {
		cfg.OpenSource = func(_ context.Context, settings mirror.Settings) (mirror.Source, error) {
			connection, err := kafkasource.FromSettings(settings)
			if err != nil {
				return nil, err
			}
			connection.Bound = 3 * time.Second
			return kafkasource.New(connection)
		}
	} else {
		if c.source, err = kafkasource.New(kafkasource.Config{Seeds: o.Seeds, Bound: 3 * time.Second}); err != nil {
			return err
		}
		cfg.Source = c.source
	}
	if c.mirror, err = mirror.Open(ctx, cfg); err != nil && c.source != nil {
		err = errors.Join(err, c.source.Close())
	}
	return err
}

func (c *process) verb(ctx context.Context, o order) (err error) {
	control := c.control
	if o.Held != "" {
		control = &heldControl{Control: control, where: o.Held}
	}
	a, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: o.Mirror, Control: control, States: keyedlog.NewStateStore(c.records)})
	if err != nil {
		return err
	}
	switch o.Verb {
	case "create":
		_, err = a.Create(ctx, o.Settings, mirror.CreateOptions{})
	case "delete":
		_, err = a.Delete(ctx, mirror.DeleteOptions{})
	case "alter":
		_, err = a.AlterConfig(ctx, o.Settings, nil, mirror.AlterConfigOptions{})
	case "start":
		_, err = a.Start(ctx, o.Topics, mirror.StartOptions{})
	case "stop":
		_, err = a.Stop(ctx, o.Topics, mirror.StopOptions{})
	case "pause":
		_, err = a.Pause(ctx, o.Topics, mirror.PauseOptions{})
	case "resume":
		_, err = a.Resume(ctx, o.Topics, mirror.ResumeOptions{})
	case "recover":
		_, err = a.Recover(ctx, o.Topics, mirror.RecoverOptions{})
	default:
		err = fmt.Errorf("no such verb %q", o.Verb)
	}
	return err
}

func (c *process) describe(ctx context.Context, o order, to *described) error {
	a, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: o.Mirror, Control: c.control, States: keyedlog.NewStateStore(c.records)})
	if err != nil {
		return err
	}
	d, err := a.Describe(ctx)
	if err != nil {
		return err
	}
	to.Text = d.String()
	for _, n := range d.Nodes {
		if n.Seen.After(to.Seen) {
			to.Seen = n.Seen
		}
	}
	for _, t := range d.Topics {
		for _, p := range t.Partitions {
			to.Partitions = append(to.Partitions, describedPartition{Topic: t.Topic, Partition: p.Partition, State: p.State, Reason: p.Reason, SourceEnd: p.SourceEnd.String(),
				End: p.DestinationEnd.String(), Lag: p.Lag.String(), Reported: p.Reported})
		}
	}
	return nil
}

// heldControl stops its own process once, in the middle of an Update. Whoever let it go on finds that the world has moved.
type heldControl struct {
	mirror.Control
	where string
	once  sync.Once
}

func (h *heldControl) Update(ctx context.Context, change func(*mirror.ControlState) error) error {
	if h.where == beforeTheWrite {
		h.once.Do(stopItself)
	}
	return h.Control.Update(ctx, func(s *mirror.ControlState) error {
		err := change(s)
		if h.where == afterItsDecison {
			h.once.Do(stopItself)
		}
		return err
	})
}

// stopItself returns when the process goes on. The signal takes a moment to stop every thread, so it waits for the other one.
func stopItself() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	<-goesOn
}
