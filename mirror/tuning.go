package mirror

import (
	"errors"

	"github.com/clustermirror/clustermirror/internal/partition"
)

// tuning is what the stored settings of a mirror may change while it runs. What is not stored is as Config says.
type tuning struct {
	fetch  FetchOptions
	policy partition.Policy
	rate   int64 // Config.FetchRate
}

// tuned is Config under the stored settings. A setting that cannot be read changes nothing, and is an error.
func (c *Config) tuned(stored Settings) (tuning, error) {
	t := tuning{c.Fetch, partition.Policy{Loss: partition.LossPolicy(c.Loss), StartFloor: c.StartFloor}, c.FetchRate}
	s, err := stored.Canonical()
	if err != nil {
		return t, err
	}
	var errs []error
	fetch, err := s.FetchOptions()
	if errs = append(errs, err); err == nil {
		for name, take := range map[string]func(){
			fetchWaitSetting:        func() { t.fetch.MaxWait = fetch.MaxWait },
			fetchMinBytesSetting:    func() { t.fetch.MinBytes = fetch.MinBytes },
			fetchMaxBytesSetting:    func() { t.fetch.PartitionMaxBytes = fetch.PartitionMaxBytes },
			fetchResponseMaxSetting: func() { t.fetch.MaxBytes = fetch.MaxBytes },
		} {
			if _, set := s[name]; set {
				take()
			}
		}
	}
	loss, err := s.LossPolicy()
	if errs = append(errs, err); err == nil {
		if _, set := s[lossPolicySetting]; set {
			t.policy.Loss = partition.LossPolicy(loss)
		}
	}
	floor, err := s.StartFloor()
	if errs = append(errs, err); err == nil {
		if _, set := s[startFloorSetting]; set {
			t.policy.StartFloor = floor
		}
	}
	rate, err := s.FetchRate()
	if errs = append(errs, err); err == nil {
		if _, set := s[rateSetting]; set {
			t.rate = rate
		}
	}
	return t, errors.Join(errs...)
}

// tune takes stored settings into what runs.
func (m *Mirror) tune(stored Settings) error {
	next, err := m.cfg.tuned(stored)
	m.mu.Lock()
	was := m.tuning
	m.tuning = next
	all := m.everyRunner()
	m.mu.Unlock()
	if was.policy != next.policy {
		for _, r := range all {
			r.send(partition.Event{Kind: partition.Tuned, Policy: next.policy})
		}
	}
	if was.rate != next.rate {
		m.link.allow(next.rate)
	}
	if was.fetch != next.fetch {
		m.link.renew()
	}
	return err
}

// tunedNow is how the mirror is tuned now.
func (m *Mirror) tunedNow() tuning {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tuning
}

// Apply sets in a Config what a node's options say; what they do not say is left as it is.
func (o NodeOptions) Apply(c *Config) {
	c.FetchersPerBroker, c.RefreshInterval, c.FetchBackoff, c.Retry = o.FetchersPerBroker, o.RefreshInterval, o.FetchBackoff, o.Retry
	c.VerifyRate, c.VerifyInterval = o.VerifyRate, o.VerifyInterval
}
