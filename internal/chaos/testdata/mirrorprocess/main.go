// The mirror's process of the chaos test. It is built in the place of examples/custombroker/main.go (go build -overlay), so that the log is that example's and no other.
//
// It takes orders from its standard input, one line of JSON each, and answers each with one line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/chaos/talk"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
)

// orderBound is the longest that an order may take: less than the test waits for its answer, and far more than it takes on a machine that is busy.
const orderBound = 4 * time.Minute

type process struct {
	talk.Setup
	destination *Destination
	records     keyedlog.Log
	source      *kafkasource.Source
	mirror      *mirror.Mirror
}

func main() {
	signal.Ignore(syscall.SIGXFSZ) // a file that must not grow is an error of its write
	p := &process{}
	err := errors.New("one argument is needed, the setup")
	if len(os.Args) == 2 {
		err = json.Unmarshal([]byte(os.Args[1]), &p.Setup)
	}
	if err == nil {
		err = p.open()
	}
	answers := json.NewEncoder(os.Stdout)
	first := talk.Answer{}
	if err != nil {
		first.Err = err.Error()
	}
	if answers.Encode(first) != nil || err != nil {
		os.Exit(3)
	}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var o talk.Order
		var a talk.Answer
		if err = json.Unmarshal(line, &o); err == nil {
			err = p.obey(o, &a)
		}
		if err != nil {
			a.Err = err.Error()
		}
		if answers.Encode(a) != nil || o.Do == "close" {
			return
		}
	}
}

func (p *process) open() (err error) {
	ctx, stop := context.WithTimeout(context.Background(), orderBound)
	defer stop()
	if p.destination, err = OpenDestination(p.Dir); err != nil {
		return err
	}
	events, err := os.OpenFile(p.Events, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if p.records, err = filestore.Open(p.States, filestore.Options{}); err != nil {
		return err
	}
	if p.source, err = kafkasource.New(kafkasource.Config{Seeds: p.Seeds, Bound: 3 * time.Second, ClientOptions: []kgo.Opt{kgo.ClientID("chaos-mirror")}}); err != nil {
		return err
	}
	p.mirror, err = mirror.Open(ctx, mirror.Config{
		Name: p.Mirror, Source: p.source, Destination: p.destination, Store: keyedlog.NewStateStore(p.records), Control: mirror.NewControl(p.records), Sink: mirror.FileSink(p.Dropped),
		RefreshInterval: time.Second, FetchBackoff: 100 * time.Millisecond, CallBound: 5 * time.Second, Fetch: mirror.FetchOptions{MaxWait: 200 * time.Millisecond},
		Retry: mirror.RetryPolicy{Initial: 200 * time.Millisecond, Max: time.Second},
		OnEvent: func(e mirror.Event) {
			at := e.Where()
			t := talk.Told{Time: at.Time, Kind: reflect.TypeOf(e).Name(), Topic: at.Topic, Partition: at.Partition, Text: e.String()}
			switch e := e.(type) {
			case mirror.RecordsDropped:
				t.From, t.To = e.From, e.To
			case mirror.RecordsLost:
				t.From, t.To = e.From, e.To
			}
			line, err := json.Marshal(t)
			if err == nil {
				_, err = events.Write(append(line, '\n')) // one write, so that a kill leaves whole lines
			}
			if err != nil { // the test judges by what was told: it must not miss an event
				fmt.Fprintln(os.Stderr, "event:", err)
				os.Exit(4)
			}
		},
	})
	return err
}

func (p *process) obey(o talk.Order, a *talk.Answer) (err error) {
	ctx, stop := context.WithTimeout(context.Background(), orderBound)
	defer stop()
	switch o.Do {
	case "status":
		p.status(a)
	case "start":
		_, err = p.mirror.Admin().Start(ctx, o.Topics, mirror.StartOptions{})
	case "startover":
		var consents []mirror.Consent
		for _, t := range p.mirror.Status().Topics {
			for _, x := range t.Partitions {
				if t.Topic == o.Topic && x.NeedsConsent != nil {
					consents = append(consents, *x.NeedsConsent)
				}
			}
		}
		_, err = p.mirror.Admin().Start(ctx, []string{o.Topic}, mirror.StartOptions{Consents: consents})
		a.Text = fmt.Sprint(consents)
	case "pause":
		_, err = p.mirror.Admin().Pause(ctx, o.Topics, mirror.PauseOptions{})
	case "resume":
		_, err = p.mirror.Admin().Resume(ctx, o.Topics, mirror.ResumeOptions{})
	case "recover":
		_, err = p.mirror.Admin().Recover(ctx, o.Topics, mirror.RecoverOptions{})
	case "plan":
		plan := mirror.PlanFailover(p.mirror.Snapshot(), mirror.FailoverOptions{})
		a.Plan, err = plan.JSON()
		a.Text = plan.String()
	case "failover":
		var plan mirror.FailoverPlan
		if err := json.Unmarshal(o.Plan, &plan); err != nil {
			return err
		}
		var report mirror.FailoverReport
		report, err = p.mirror.ExecuteFailover(ctx, plan)
		a.Text = report.String()
		for _, r := range report.Partitions {
			x := talk.Result{FailoverResult: r}
			if r.Err != nil {
				x.Err, x.FailoverResult.Err = r.Err.Error(), nil
			}
			a.Results = append(a.Results, x)
		}
	case "produce":
		l, err := p.destination.OpenLog(ctx, mirror.TopicPartition{Topic: o.Topic, Partition: o.Partition})
		if err != nil {
			return err
		}
		a.Offset, err = l.(*Log).Produce(ctx, o.Batch)
		return err
	case "limit":
		var now syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &now); err != nil {
			return err
		}
		now.Cur = o.Bytes
		if o.Bytes == 0 {
			now.Cur = now.Max
		}
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &now)
	case "close":
		return errors.Join(p.mirror.Close(), p.source.Close(), p.records.Close(), p.destination.Close())
	default:
		err = fmt.Errorf("no such order %q", o.Do)
	}
	return err
}

func (p *process) status(a *talk.Answer) {
	s := p.mirror.Status()
	if s.Fenced != nil {
		a.Fenced = s.Fenced.Error()
	}
	a.Troubles = map[string]string{}
	for _, t := range s.Topics {
		if t.Err != nil {
			a.Troubles[t.Topic] = t.Err.Error()
		}
		a.Partitions = append(a.Partitions, t.Partitions...)
	}
}
