package kraft

import (
	"fmt"
	"strings"
)

// Command is the line that grants the right to a principal ("User:mirror"), for one topic or group, or "*" for all. A name that ends in * is what names begin with.
func (r Right) Command(principal, name string) string {
	resource := "--cluster"
	if r.Resource != "Cluster" {
		pattern := ""
		if begin, ok := strings.CutSuffix(name, "*"); ok && begin != "" {
			name, pattern = begin, " --resource-pattern-type prefixed"
		}
		resource = "--" + strings.ToLower(r.Resource) + " '" + name + "'" + pattern
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server BROKER:PORT --command-config ADMIN.properties --add --allow-principal '%s' --operation %s %s", principal, r.Operation, resource)
}

// Rules are the lines that give a principal ("User:mirror") what a process needs to join and mirror, and withSync what metadata sync needs beside it; those of SECURITY.md. topics are the names of
// the mirrored topics, one that ends in * for all that begin so; none: all topics. Groups are all groups.
func Rules(principal string, withSync bool, topics []string) []string {
	rights := Rights()
	if withSync {
		rights = append(rights, SyncRights()...)
	}
	var lines []string
	for _, r := range rights {
		names := topics
		if r.Resource != "Topic" || len(topics) == 0 {
			names = []string{"*"}
		}
		for _, name := range names {
			lines = append(lines, r.Command(principal, name))
		}
	}
	return lines
}
