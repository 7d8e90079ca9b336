package clienthistory

// Check finds the anomalies of a history and the logs that it ended in. The order is the same for the same input.
func Check(h History, f Final) []Anomaly {
	return nil
}
