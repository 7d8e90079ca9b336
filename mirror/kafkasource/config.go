package kafkasource

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror"
)

// Defaults of Config and mirror.FetchOptions.
const (
	defaultBound             = 10 * time.Second
	defaultMaxBatchBytes     = 256 << 20
	defaultReadAheadBytes    = 32 << 20
	defaultMaxWait           = 500 * time.Millisecond
	defaultMinBytes          = 1
	defaultMaxBytes          = 10 << 20
	defaultPartitionMaxBytes = 1 << 20
)

// Limits of the client's own settings.
const (
	minRequestTimeout = 100 * time.Millisecond
	maxRequestTimeout = 15 * time.Minute
	minResponseBytes  = 64 << 20 // the client insists that its own fetch limit, which is not used here, fits
	maxResponseBytes  = 1 << 30
)

// Config says where the source is and how to reach it. Zero values are the defaults in brackets.
type Config struct {
	// Seeds are host:port addresses of some brokers. At least one.
	Seeds []string
	// ClientOptions are the client's options for security and dialing (kgo.SASL, kgo.DialTLSConfig, kgo.Dialer, kgo.ClientID, kgo.WithLogger …).
	// They are used for the look-up client and for one client per Fetcher, so what they hold must bear use by several clients; a mechanism with a
	// Close of its own (Kerberos) must be told to outlive one client. Options for consuming, producing, retries and time limits have no effect.
	ClientOptions []kgo.Opt
	// Certificates are those that connections made with ClientOptions depend on, for Source.Certificates (FromSettings sets it); nil: not known.
	Certificates func() []mirror.Certificate
	// Bound is the longest time of one call [10 s]. A Fetch may take FetchOptions.MaxWait more.
	Bound time.Duration
	// MaxBatchBytes is the largest batch that can be read, if it is larger than FetchOptions.MaxBytes [256 MiB]. A broker answers at least one whole batch.
	MaxBatchBytes int32
	// ReadAheadBytes is how much one fetcher may ask for ahead of what it has received, over a link with a round trip of 20 ms or more, for partitions that are far
	// behind [32 MiB]. It uses no more than fills the link. Negative: one request at a time.
	ReadAheadBytes int64
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Seeds) == 0 || slices.ContainsFunc(c.Seeds, func(seed string) bool { return strings.TrimSpace(seed) == "" }) {
		return c, errors.New("kafkasource: no seed address, or an empty one: name at least one broker of the source as host:port")
	}
	if c.Bound <= 0 {
		c.Bound = defaultBound
	}
	if c.MaxBatchBytes <= 0 {
		c.MaxBatchBytes = defaultMaxBatchBytes
	}
	if c.ReadAheadBytes == 0 {
		c.ReadAheadBytes = defaultReadAheadBytes
	}
	return c, nil
}

func withFetchDefaults(o mirror.FetchOptions) mirror.FetchOptions {
	if o.MaxWait <= 0 {
		o.MaxWait = defaultMaxWait
	}
	if o.MinBytes <= 0 {
		o.MinBytes = defaultMinBytes
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.PartitionMaxBytes <= 0 {
		o.PartitionMaxBytes = defaultPartitionMaxBytes
	}
	return o
}

// lookupOptions are the options of the look-up client. What bounds a call comes after what the caller chose.
func (c Config) lookupOptions(hook kgo.Hook) []kgo.Opt {
	// A third of the bound for one try, so that one silent broker does not use up a call that another could answer.
	try := clampTimeout(c.Bound / 3)
	opts := append([]kgo.Opt{kgo.DialTimeout(try)}, c.ClientOptions...)
	return append(opts, append(quiet(hook),
		kgo.SeedBrokers(c.Seeds...),
		kgo.RequestTimeoutOverhead(try),
		kgo.RequestRetries(0),
	)...)
}

// fetchOptions are the options of one Fetcher's client, which knows one broker only.
func (c Config) fetchOptions(hook kgo.Hook, address string, o mirror.FetchOptions) []kgo.Opt {
	largest := int64(o.MaxBytes) + int64(c.MaxBatchBytes)
	opts := append([]kgo.Opt{kgo.DialTimeout(clampTimeout(c.Bound))}, c.ClientOptions...)
	return append(opts, append(quiet(hook),
		kgo.SeedBrokers(address),
		// The client adds a request's own wait only for request types it knows, and ours is not one of them.
		kgo.RequestTimeoutOverhead(clampTimeout(c.Bound+o.MaxWait)),
		kgo.RequestRetries(0),
		kgo.BrokerMaxReadBytes(int32(min(max(largest, minResponseBytes), maxResponseBytes))),
	)...)
}

// quiet keeps a client from asking anything by itself.
func quiet(hook kgo.Hook) []kgo.Opt {
	return []kgo.Opt{
		kgo.WithHooks(hook),
		kgo.DisableClientMetrics(),
		kgo.MetadataMaxAge(time.Hour),
		kgo.MetadataMinAge(10 * time.Minute),
	}
}

func clampTimeout(d time.Duration) time.Duration {
	return min(max(d, minRequestTimeout), maxRequestTimeout)
}
