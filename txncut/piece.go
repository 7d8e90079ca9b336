package txncut

import "fmt"

// Outcome is how one partition's copy says that a transaction ended.
type Outcome uint8

// The outcomes.
const (
	Open      Outcome = iota // no marker is there
	Committed                // a COMMIT is there
	Aborted                  // an ABORT is there
)

func (o Outcome) String() string { return [...]string{"open", "committed", "aborted"}[o] }

// Version is which protocol a transaction was made by, as far as one piece tells.
type Version uint8

// The versions.
const (
	VersionUnknown Version = iota // nothing tells
	Version1                      // producer id and epoch name many transactions
	Version2                      // KIP-890: producer id and epoch of the data name one transaction
)

func (v Version) String() string { return [...]string{"unknown", "v1", "v2"}[v] }

// Piece is what one partition's copy holds of one transaction: its data, and its marker if there is one. Timestamps are milliseconds since the Unix epoch, below 0 where nobody knows.
type Piece struct {
	ProducerID     int64
	ProducerEpoch  int16 // of the data; of the last batch, should they differ
	FirstOffset    int64
	LastOffset     int64 // of the data
	FirstTimestamp int64 // of the first record, by the producer's clock, or by the broker's where the topic has it so

	Outcome         Outcome
	MarkerOffset    int64 // the next three say nothing of an open one: −1, −1, −1
	MarkerEpoch     int16
	MarkerTimestamp int64 // by the clock of the source's broker
}

// Version is what the piece tells of its transaction's protocol. Only a COMMIT tells: under v2 it carries a higher epoch than the data, under v1 the same. An ABORT tells nothing, as
// a coordinator that ends a v1 transaction on its own raises the epoch too, and a mirror's own ABORT of a v2 transaction does not.
func (p *Piece) Version() Version {
	switch {
	case p.Outcome != Committed:
		return VersionUnknown
	case p.MarkerEpoch > p.ProducerEpoch:
		return Version2
	}
	return Version1
}

// Partition is one partition's copy. Every partition is given once; those that take part in no transaction may be left out, unless they are not Complete.
type Partition struct {
	Topic  string
	Number int32
	// Floor is the lowest offset that may be cut to: the log's start, or above it where clients could write last. One above End counts as End.
	Floor int64
	// End is where the copy ends, on a batch's boundary. What lies at or above it is not there: a piece with its marker there is as good as open.
	End int64
	// Pieces are what Reader found from the Floor on or from further below, in any order. They are only read.
	Pieces []Piece
	// Complete says that the copy has everything that the source's partition had when the newest COMMIT of the other partitions was written. See Result.Unseen.
	Complete bool
}

// Place is one offset of a partition.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

func (p Place) String() string { return fmt.Sprintf("%s-%d at %d", p.Topic, p.Partition, p.Offset) }

func (p *Partition) place(offset int64) Place {
	return Place{Topic: p.Topic, Partition: p.Number, Offset: offset}
}

// kept says whether a copy that ends at end knows how the piece ended.
func (p *Piece) kept(end int64) bool { return p.Outcome != Open && p.MarkerOffset < end }

// name names the transaction of a piece, as well as its producer id and epoch do.
type name struct {
	producerID    int64
	producerEpoch int16
}

func (p *Piece) name() name { return name{p.ProducerID, p.ProducerEpoch} }

func (n name) String() string {
	return fmt.Sprintf("producer %d epoch %d", n.producerID, n.producerEpoch)
}
