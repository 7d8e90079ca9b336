package statemachine

import "time"

// RetryPolicy is decision 9. The zero value is the default: 1 s, 300 s, unlimited.
type RetryPolicy struct {
	Initial  time.Duration // 0 → 1 s
	Max      time.Duration // 0 → 300 s
	Attempts int           // 0 → unlimited
}

// Delay before retry n (n = 1 → Initial): min(Max, Initial·2^(n−1)), times a factor in [0.8, 1.2) made of jitter in [0, 1).
func (p RetryPolicy) Delay(attempt int16, jitter float64) time.Duration { panic("contract") }

// Retryable says whether a failure with this attempt number is retried: not −1 (non-retryable), not beyond Attempts.
func (p RetryPolicy) Retryable(attempt int16) bool { panic("contract") }

// NonRetryable as an attempt number marks a failure that only a person ends.
const NonRetryable int16 = -1

// Fail is the record after a failure: state FAILED, message, attempt counted (saturates at 32767; non-retryable stays so), previous state kept through repeated failures.
func Fail(r PartitionState, message string, nonRetryable bool) PartitionState { panic("contract") }

// Move is the record after a legal move; failure fields are cleared as spec §2 says (on STOPPED, PAUSED, PREPARING; for MIRRORING only by ClearFailure after the first processed fetch).
// Episode grows by one when PREPARING is entered from UNKNOWN or STOPPED (decision 2). Errors: *IllegalMoveError.
func Move(r PartitionState, to State) (PartitionState, error) { panic("contract") }

// ClearFailure is the record after the first processed fetch.
func ClearFailure(r PartitionState) PartitionState { panic("contract") }

// RetryTarget is the state in which a failed partition goes on: the previous one; PREPARING if none or UNKNOWN; PAUSING → PAUSING is retried (decision 10).
func RetryTarget(r PartitionState) State { panic("contract") }

// IllegalMoveError is a move that Legal refuses.
type IllegalMoveError struct{ From, To State }

func (e *IllegalMoveError) Error() string { panic("contract") }
