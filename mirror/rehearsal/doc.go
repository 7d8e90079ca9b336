/*
Package rehearsal fails a canary topic over, writes to it, and brings it back, through the same code that a disaster would use: so that this path does not run for the first time at 3 a.m.

The canary is a topic of the mirror that nobody else uses: made at the source by its owners, with a record from time to time, and started like any other topic. Its name has to be said (Options.Topic), so no other
topic is ever failed over. A rehearsal

	plan           plans the failover of this topic alone. A canary that is not in step is no rehearsal: that is reported, and nothing is done
	failover       carries the plan out
	write          writes one record to each partition of the copy, as a client of the destination does (Options.Write). What begins with the call of the failover and ends here is the time without
	               a topic to write to: Report.Writable
	plan failback  plans what the copy gives up to follow its source again. That source mirrors nothing from here, so it cannot tell what it has of the copy: all of the canary's copy is given up, which is
	               handed to the mirror's Sink, and copied anew. Where there are other records in it than the rehearsal's, nothing is
	failback       carries that plan out, and waits until the canary is in step again; both logs are compared if the mirror has a Verifier

Each step has a bound. When one fails the report says which, nothing more is done (but a canary that could not be written to is brought back), and how the canary was left: a canary that stays STOPPED is not touched by the next rehearsal, which says so; start it again (Admin.Start, or with the plan of a
failback) when the reason is gone. A rehearsal never brings the canary back once another topic of the mirror has been stopped since it began: that is a disaster, and the canary stays as it is.

What it does not rehearse is the way home over the old source, for which a mirror has to run there, in the other direction: plan that (Mirror.PlanFailback there) when it is needed.

Schedule rehearses again and again and keeps the last report, and when the last good one was. Package metrics exports both (metrics.Look.Rehearsals); docs/alarms.yml has the alarm for a rehearsal that is overdue.
*/
package rehearsal
