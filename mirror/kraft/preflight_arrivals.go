package kraft

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// arrivalBound is how long a live broker that is to follow a partition may take to fetch it for the first time: brokers try again every second.
const arrivalBound = 15 * time.Second

// watchArrivals tells of live brokers that do not come to follow what this process leads: that the advertised address leads here from the brokers, and that they accept the
// certificate, shows only then. Each broker is watched until it has come once.
func (d *Destination) watchArrivals(ctx context.Context) {
	came, told, since := map[int32]bool{}, map[int32]bool{}, map[int32]time.Time{}
	for pause(ctx, 500) == nil {
		live := d.liveBrokers()
		waiting := map[int32]bool{}
		for _, l := range d.all() {
			if l.mine("") != nil {
				continue
			}
			for _, f := range l.log.Followers() {
				switch {
				case !f.Seen.IsZero():
					came[f.Broker] = true
				case slices.Contains(live, f.Broker):
					waiting[f.Broker] = true
				}
			}
		}
		for id := range waiting {
			if came[id] || told[id] {
				continue
			}
			if since[id].IsZero() {
				since[id] = time.Now()
			}
			if time.Since(since[id]) > arrivalBound {
				told[id] = true
				d.notice(Event{Kind: Trouble, Text: fmt.Sprintf("broker %d is alive and has partitions to follow, and has not come for them in %s: it does not reach %s, or refuses its certificate. Its server.log says why (ReplicaFetcherThread, "+
					"NetworkClient); what it does not copy is not safe there", id, arrivalBound, hostPort{d.membership.host, d.membership.port})})
			}
		}
		for id := range since {
			if !waiting[id] || came[id] {
				delete(since, id)
			}
		}
	}
}
