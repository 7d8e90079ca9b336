package txncut_test

import (
	"fmt"

	"github.com/clustermirror/clustermirror/txncut"
)

// A transaction wrote orders and payments. Its COMMIT reached the copy of orders; the copy of payments was a little behind when the source was lost.
func Example() {
	orders := txncut.Partition{Topic: "orders", Number: 0, End: 10, Complete: true, Pieces: []txncut.Piece{{
		ProducerID: 7, ProducerEpoch: 1, FirstOffset: 0, LastOffset: 4, FirstTimestamp: 1000,
		Outcome: txncut.Committed, MarkerOffset: 7, MarkerEpoch: 2, MarkerTimestamp: 1100, // a higher epoch than the data's: KIP-890
	}}}
	payments := txncut.Partition{Topic: "payments", Number: 0, End: 4, Complete: true, Pieces: []txncut.Piece{{
		ProducerID: 7, ProducerEpoch: 1, FirstOffset: 2, LastOffset: 3, FirstTimestamp: 1020, MarkerOffset: -1,
	}}}
	partitions := []txncut.Partition{orders, payments}

	for _, torn := range txncut.Find(partitions, txncut.Options{}).Torn {
		fmt.Println(torn)
	}
	cut := txncut.Cut(partitions, txncut.Options{MaxGiveUp: 1000})
	fmt.Print(cut.String())

	// Output:
	// torn producer 7 epoch 1: committed in orders-0 at 7; not in payments-0 at 2
	// cut: offsets given up: 3
	// orders-0 at 7: gives up [7, 10), readers of committed records may have seen [7, 10)
	// 1. producer 7 epoch 1: committed in orders-0 at 7, torn by what is open in payments-0 at 2
}
