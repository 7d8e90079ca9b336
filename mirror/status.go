package mirror

import (
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Unknown stands for an offset, epoch or count that nobody knows. It is never shown as a number.
const Unknown = -1

// PartitionStatus is what a Mirror knows of one partition at one moment. It is a copy.
type PartitionStatus struct {
	Mirror    string
	Topic     string
	Partition int32
	TopicID   TopicID // the destination's

	State        statemachine.State
	Want         statemachine.Desired
	Step         string // of PREPARING or STOPPING; "" elsewhere
	Reason       string // why FAILED, why it waits, or what slows it down (a quota at the source, a limit of our own); "" if all is well
	RetryAttempt int16  // 0: not failed; statemachine.NonRetryable: a person has to act
	NextRetry    time.Time
	Halted       bool // this process serves the partition no more: somebody else wrote its state, or has its owner's name
	Episode      int32
	WasOpen      bool // clients wrote this log before the mirror had it, and what they wrote may still lie in it

	Start, End, Replicated int64 // of the copy
	LeaderEpoch            int32 // the destination's
	Owner                  Ownership
	LastStable             int64 // last stable offset of the copy
	LastEpoch              int32 // leader epoch of the copy's last batch, Unknown if none
	InFlight               []Transaction
	HighestProducerID      int64 // Unknown if none

	SourceClusterID   string
	SourceTopicID     TopicID
	SourceLeader      int32
	SourceLeaderEpoch int32
	SourceStart       int64     // log start offset at the source, Unknown
	SourceEnd         int64     // high watermark at the source, as last measured; Unknown
	SourceSeen        time.Time // when it was measured; zero: never
	NoEpochChecks     bool      // the source cannot answer epoch questions: "no divergence checks"

	// Unproved: what the copy holds is not known to be the source's, because in this episode it was not compared with it to the end (PREPARING). Its own records may lie above where both are the same, so
	// no lag and no loss follows from where it ends.
	Unproved bool

	LagOffsets   int64         // SourceEnd − Replicated, never below 0; Unknown when it cannot be known (never measured, denied, failed, Unproved)
	OffsetBytes  float64       // bytes that an offset has on the average, in what this process copied last; 0: it has copied nothing
	LagTime      time.Duration // now − the last moment at which the copy held everything then known at the source; Unknown when there is none
	LagUnknown   time.Time     // since when the lag cannot be measured; zero: it can
	NothingLeft  bool          // the source end lies above End, and an empty fetch proved that there is nothing to read in between (F-05)
	UsedTo       int64         // up to where offsets are known to be used, whatever becomes of this process: End, or more where NothingLeft was proved and recorded. A copy's own first batch goes there
	LostFrom     int64         // the last range that was lost at the source before it was copied: [LostFrom, LostTo); both 0: none
	LostTo       int64
	DroppedFrom  int64 // the last range that was cut from the copy in this process: [DroppedFrom, DroppedTo); both 0: none
	DroppedTo    int64
	NeedsConsent *Consent                      // what a refused start would drop
	LME          *statemachine.LastMirrorEpoch // recorded at the last stop
	Aborts       []AbortMarker                 // written by the last stop
	ResetAt      int64                         // offset of the MIRROR_PID_RESET of the last stop, Unknown if none

	StopSteps []StepTime // of the last stop in this process, or the one under way: how long each took; nil: there was none
	StopEnded time.Time  // when that was over; zero: it is not

	Verification *PartitionVerification // how its comparison with the source stands; nil: it is not compared continuously, or its turn has not come

	GroupsUnlooked bool // its groups were not looked at since its mirroring began: what the source has of them is not known. False where groups are not followed at all, and of a STOPPED one
}

// LagBytes is about how many bytes LagOffsets are, by OffsetBytes; Unknown where one of the two is.
func (p *PartitionStatus) LagBytes() int64 { return bytesOf(p.LagOffsets, p.OffsetBytes) }

// Transaction is one in-flight transaction of the copy.
type Transaction struct {
	ProducerID    int64
	ProducerEpoch int16
	FirstOffset   int64
	LastOffset    int64
}

// AbortMarker is one ABORT written at stop.
type AbortMarker struct {
	ProducerID    int64
	ProducerEpoch int16
	FirstOffset   int64 // of the transaction; Unknown where a stop was tried again on a log that was not read as far down (Recoverer)
	Offset        int64 // of the marker
}

// Consent allows dropping exactly the destination records [From, To) of one partition, in the episode that is to begin (spec decision 7).
type Consent struct {
	TopicID   TopicID // the destination's
	Partition int32
	From, To  int64
	Episode   int32
}
