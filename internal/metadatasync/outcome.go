package metadatasync

// Outcome is what became of one change at the destination.
type Outcome uint8

// The outcomes.
const (
	NotKnown   Outcome = iota // it was tried, and may have been carried out or not
	CarriedOut                // it is so now
	Refused                   // it was refused, or not tried: nothing was done
)
