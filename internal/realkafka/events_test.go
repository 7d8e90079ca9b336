package realkafka_test

import "github.com/clustermirror/clustermirror/mirror"

type (
	recordsDropped = mirror.RecordsDropped
	recordsLost    = mirror.RecordsLost
	stateChanged   = mirror.StateChanged
)
