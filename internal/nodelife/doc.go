// Package nodelife has tests of mirror nodes as services, between two real clusters: processes of the command line that are started, told to end, killed, upgraded and given new credentials
// while mirrors run. It has no code that anybody imports.
package nodelife
