// Package runbook follows the pages of docs/runbook, command by command, against two real Kafka clusters, and compares what is printed with what the pages show. It has tests only.
//
//	CLUSTERMIRROR_KAFKA=required go test ./internal/runbook            # all pages
//	CLUSTERMIRROR_KAFKA=required go test ./internal/runbook -run 'TestPages/failback$' -v
//	CLUSTERMIRROR_KAFKA=required go test ./internal/runbook -update    # write what is printed now into the pages; read the diff
//
// # What a page is to the test
//
// The lines of its console blocks that begin with "$ " are run by bash, in order, in a folder of the page's own; a line that ends in a backslash goes on in the next one. What stands below a command is
// what it prints. "…" alone on a line stands for any lines. An exit status that is not 0 is the last line, "exit status 4". Blocks of other kinds are for people.
//
// What people do not see are HTML comments that begin with "test:". They set up, and break, what the page is about: directives_test.go has them.
//
// Names on a page are those of its reader: primary:9092, standby:9092, mirror dr, topics orders and payments, group billing. They stand for addresses of the run, and for names that no other page has.
//
// Compared is what mask_test.go leaves: no numbers but a 0 that stands alone, no ages, times, ids and plans. A command that only looks (--describe, --groups, --list) is repeated, as its
// reader would, until it shows what the page says, at most for patience.
package runbook
