package node

// readable is the name of the listener for clients, "" for none.
func (p *parsed) readable() string { return "" }

// clientListener takes the listener that is not the brokers'.
func (p *parsed) clientListener(here, told map[string]string, no func(setting, problem, advice string)) {
	for name := range here {
		if name != p.inter {
			no(listenersKey, "has "+name+", and mirrored topics cannot be read by clients yet", "take it out")
		}
	}
}

// clientSecurity reads what clients meet.
func (p *parsed) clientSecurity(protocol string, settings map[string]string, errs *[]error) {}
