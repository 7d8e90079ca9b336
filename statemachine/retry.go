package statemachine

import (
	"fmt"
	"math"
	"time"
)

// RetryPolicy is decision 9. The zero value is the default: 1 s, 300 s, unlimited. Negative values count as 0.
type RetryPolicy struct {
	Initial  time.Duration // 0 → 1 s
	Max      time.Duration // 0 → 300 s
	Attempts int           // 0 → unlimited; attempts saturate at 32767, so a greater number is unlimited too
}

// The defaults of RetryPolicy.
const (
	defaultInitial = time.Second
	defaultMax     = 300 * time.Second
)

// Delay before retry n (n = 1 → Initial): min(Max, Initial·2^(n−1)), times a factor in [0.8, 1.2) made of jitter in [0, 1).
// The factor comes last, so that partitions which wait for Max spread out too: a delay may exceed Max by up to a fifth. An attempt below 1 counts as 1,
// a jitter outside [0, 1) as the nearest inside.
func (p RetryPolicy) Delay(attempt int16, jitter float64) time.Duration {
	delay, limit := p.Initial, p.Max
	if delay <= 0 {
		delay = defaultInitial
	}
	if limit <= 0 {
		limit = defaultMax
	}
	for n := int16(1); n < attempt && delay < limit; n++ {
		if delay > limit/2 {
			delay = limit
		} else {
			delay *= 2
		}
	}
	delay = min(delay, limit)
	if !(jitter >= 0) { // NaN too
		jitter = 0
	}
	jitter = min(jitter, math.Nextafter(1, 0))
	jittered := float64(delay) * (0.8 + 0.4*jitter)
	if jittered >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(jittered)
}

// Retryable says whether a failure with this attempt number is retried: not −1 (non-retryable), not beyond Attempts.
func (p RetryPolicy) Retryable(attempt int16) bool {
	return attempt >= 0 && (p.Attempts <= 0 || int(attempt) <= p.Attempts)
}

// NonRetryable as an attempt number marks a failure that only a person ends.
const NonRetryable int16 = -1

// Fail is the record after a failure: state FAILED, message, attempt counted (saturates at 32767; non-retryable stays so), previous state kept through repeated failures.
func Fail(r PartitionState, message string, nonRetryable bool) PartitionState {
	if r.State != Failed {
		r.PreviousState = r.State
	}
	switch {
	case nonRetryable || r.RetryAttempt < 0:
		r.RetryAttempt = NonRetryable
	case r.RetryAttempt < math.MaxInt16:
		r.RetryAttempt++
	}
	r.State = Failed
	r.ErrorMessage = message
	return r
}

// Move is the record after a legal move; failure fields are cleared as spec §2 says (on STOPPED, PAUSED, PREPARING; for MIRRORING only by ClearFailure after the first processed fetch).
// They stay when a retry begins, FAILED → RetryTarget, also where that is PREPARING: otherwise every attempt would be the first and the delay would never grow. A move out of
// a non-retryable failure is a person's and clears them; so does a move out of FAILED to another state than the retry's (a stop asked for after a night of retries
// begins with the first delay), and the move from one state that is not FAILED to another one; but MIRRORING.
//
// Episode grows by one when PREPARING is entered from UNKNOWN or STOPPED (decision 2), or from a FAILED that stands for one of these or for STOPPING: an LME that was
// recorded there belongs to an episode that is over. FoundOpen ends with the move to a state in which the log is copied to, and stays through PREPARING, STOPPING, STOPPED
// and FAILED. Mirrored begins with that move, and ends with the episode. AwaitsCut ends with PREPARING, and a hole with the episode. Moving to FAILED is Fail with the message the record has. Staying changes nothing. Errors: *IllegalMoveError.
func Move(r PartitionState, to State) (PartitionState, error) {
	from := r.State
	switch {
	case !Legal(from, to):
		return r, &IllegalMoveError{From: from, To: to}
	case to == Failed:
		return Fail(r, r.ErrorMessage, false), nil
	case from == to:
		return r, nil
	}
	before := from
	if from == Failed {
		before = r.PreviousState
	}
	if to == Preparing && (before == Unknown || before == Stopped || before == Stopping) {
		r.Mirrored, r.HoleFrom, r.HoleTo = false, 0, 0
		if r.Episode < math.MaxInt32 {
			r.Episode++
		}
	}
	var clear bool
	switch {
	case to == Stopped || to == Paused:
		clear = true
	case from == Failed:
		clear = r.RetryAttempt < 0 || to != RetryTarget(r) && to != Mirroring
	default:
		clear = to != Mirroring
	}
	switch to {
	case Mirroring, EpochFencing, Pausing, Paused:
		r.FoundOpen, r.Mirrored = false, true
	case Preparing:
		r.AwaitsCut = false
	}
	r.State = to
	if clear {
		r = ClearFailure(r)
	}
	return r, nil
}

// ClearFailure is the record after the first processed fetch: no error, no attempt, no previous state. A FAILED record is returned as it is; it has to move first.
func ClearFailure(r PartitionState) PartitionState {
	if r.State != Failed {
		r.ErrorMessage, r.RetryAttempt, r.PreviousState = "", 0, Unknown
	}
	return r
}

// RetryTarget is the state in which a failed partition goes on: the previous one; PREPARING if none or UNKNOWN; PAUSING → PAUSING is retried (decision 10).
// STOPPED → STOPPING, which asks first whether the log is open and then changes nothing. The move from FAILED to it is always legal.
func RetryTarget(r PartitionState) State {
	switch r.PreviousState {
	case EpochFencing, Mirroring, Pausing, Paused, Stopping:
		return r.PreviousState
	case Stopped:
		return Stopping
	}
	return Preparing
}

// IllegalMoveError is a move that Legal refuses.
type IllegalMoveError struct{ From, To State }

func (e *IllegalMoveError) Error() string {
	return fmt.Sprintf("statemachine: a partition may not go from %v to %v; read its record again and decide anew", e.From, e.To)
}
