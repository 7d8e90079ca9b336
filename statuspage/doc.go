/*
Package statuspage shows how mirrors are, on one page for a browser: read only, without a script, and the same as JSON.

	page, err := statuspage.New(statuspage.Config{Title: "billing", Mirrors: func() []statuspage.Subject { return []statuspage.Subject{{Name: "dr", Mirror: m}} }})
	if err != nil {
		return err
	}
	go page.Run(ctx) // samples the lag; mirror.Config{OnEvent: page.Observe} has it show what happened
	return http.ListenAndServe("127.0.0.1:9701", page)

The first line says the worst thing, in the words of mirror.Description.Head. Below it: what is wrong and why, what a failover now would lose, lag over time, topics, partitions (the worst first), the
failover plan as it would be made now, and what happened last. What is known by hearsay has its age beside it, as in the plan.

# What it answers

	/                      the mirror, or all of them where there are several
	/?mirror=M             one of several
	/?mirror=M&topic=T     one topic: its lag over time and each of its partitions
	/?mirror=M&plan        the whole failover plan, as text
	…&from=N               rows from the N-th on, where there are more than fit
	…&refresh=off          the same, standing still; else the page loads itself again every ten seconds

Links are relative, so a Page may be mounted anywhere. A path that ends with .json gives JSON, and so does a request that accepts application/json and not text/html; the plan is the
FailoverPlan itself then. In JSON what nobody knows is null, ages are in seconds, and "version" is 1 as long as only fields are added.

GET and HEAD only. It changes nothing, and no answer of it does: the page has no form.

# How much it costs

A page has at most 1 MiB, whatever is mirrored: partitions that are well are counted by topic, rows that do not fit are a link away, long texts are cut. Only the whole plan grows with its
partitions. A Mirror is asked for a Snapshot at most once in five seconds, however many people look. The page keeps 120 samples of each mirror and of at most 5,000 topics (about 1 KB each), and the last 300
events. Nothing is asked while nobody looks, but for Status at each sample.

# Who may see it

It asks for no password: serve it on a loopback address, or let something stand before it that asks. It shows names of mirrors, topics and groups, producer ids, offsets, and errors with addresses; no record
and no secret. Against pages elsewhere that make a browser ask it (DNS rebinding), a request has to name a host of the loopback, or one of Config.Hosts. Names and texts of others are escaped, and no
script, frame, form or foreign resource is allowed by its headers.
*/
package statuspage
