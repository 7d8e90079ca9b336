// Package metrics shows mirrors to Prometheus: a collector over what mirrors say of themselves, to be registered with any registry.
package metrics
