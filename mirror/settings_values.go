package mirror

import (
	"slices"
	"strconv"
	"time"
)

// number is the effective value of a number. Errors: a *SettingError.
func (s Settings) number(name string) (int64, error) {
	d, value := settingsByName[name], s.Effective(name)
	if f := d.check(name, value); f != nil {
		return 0, f
	}
	return strconv.ParseInt(value, 10, 64)
}

// numbers reads several numbers and gathers what is wrong with them.
type numbers struct {
	settings Settings
	faults   []*SettingError
}

func (n *numbers) number(name string) int64 {
	v, err := n.settings.number(name)
	if f, ok := err.(*SettingError); ok {
		n.faults = append(n.faults, f)
	}
	return v
}

// millis is a time; 0 is a millisecond where nothing would mean the default.
func (n *numbers) millis(name string) time.Duration {
	return max(1, time.Duration(n.number(name))) * time.Millisecond
}

// NodeOptionsFrom are the node-level settings, parsed; settings of other levels beside them are left alone. Errors: every fault of a node-level setting, as Settings.Check gives them.
func NodeOptionsFrom(s Settings) (NodeOptions, error) {
	n := &numbers{settings: s}
	for _, f := range s.conflicts() {
		if settingsByName[f.Setting].Level == NodeSetting {
			n.faults = append(n.faults, f)
		}
	}
	o := NodeOptions{
		StatePartitions:        int32(n.number(statePartitionsSetting)),
		StateReplicationFactor: int16(n.number(stateReplicationSetting)),
		FetchersPerBroker:      int(n.number(fetchersSetting)),
		RefreshInterval:        n.millis(refreshSetting),
		FetchBackoff:           n.millis(fetchBackoffSetting),
		Retry: RetryPolicy{
			Initial: n.millis(retryInitialSetting), Max: n.millis(retryMaxSetting), Attempts: int(n.number(retryAttemptsSetting)),
		},
		VerifyRate:     n.number(verifyRateSetting),
		VerifyInterval: n.millis(verifyIntervalSetting),
		SharedRate:     n.number(nodeRateSetting),
	}
	if err := joinFaults(n.faults); err != nil {
		return NodeOptions{}, err
	}
	return o, nil
}

// FetchOptions are the bounds of a fetcher, parsed. Errors: every fault of them.
func (s Settings) FetchOptions() (FetchOptions, error) {
	n := &numbers{settings: s}
	o := FetchOptions{
		MaxWait: n.millis(fetchWaitSetting), MinBytes: int32(n.number(fetchMinBytesSetting)), PartitionMaxBytes: int32(n.number(fetchMaxBytesSetting)),
		MaxBytes: int32(n.number(fetchResponseMaxSetting)),
	}
	if err := joinFaults(n.faults); err != nil {
		return FetchOptions{}, err
	}
	return o, nil
}

// lossPolicies are the names of the loss policies, by their number.
var lossPolicies = []string{LossRestart: "restart", LossFail: "fail", LossKeep: "keep"}

// LossPolicy is mirror.loss.policy. Errors: a *SettingError.
func (s Settings) LossPolicy() (LossPolicy, error) {
	value := s.Effective(lossPolicySetting)
	if f := settingsByName[lossPolicySetting].check(lossPolicySetting, value); f != nil {
		return 0, f
	}
	return LossPolicy(slices.Index(lossPolicies, value)), nil
}

// FetchRate is mirror.replication.throttled.rate in bytes per second, 0 for no limit. Errors: a *SettingError.
func (s Settings) FetchRate() (int64, error) {
	if s.Effective(rateSetting) == "" {
		return 0, nil
	}
	return s.number(rateSetting)
}

// StartFloor is mirror.start.floor, 0 for none. Errors: a *SettingError.
func (s Settings) StartFloor() (int64, error) { return s.number(startFloorSetting) }
