package kafkastore

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Defaults of Config.
const (
	DefaultPrefix             = "clustermirror"
	DefaultStatePartitions    = 50
	DefaultReplicationFactor  = 3
	DefaultTransactionTimeout = 10 * time.Second
	DefaultBound              = 30 * time.Second
)

// Config says where the destination cluster is and how to reach it. Zero values are the defaults in brackets.
type Config struct {
	// Seeds are host:port addresses of some brokers. At least one.
	Seeds []string
	// ClientOptions are the client's options for security and dialing (kgo.SASL, kgo.DialTLSConfig, kgo.Dialer, kgo.ClientID, kgo.WithLogger …). They are used for two
	// clients, so what they hold must bear that. Options for consuming, producing, retries and versions have no effect.
	ClientOptions []kgo.Opt
	// Prefix begins every transactional id [clustermirror]. All processes of one cluster's mirrors have the same: it is what keeps two of them from writing at once.
	Prefix string
	// StatePartitions is how many partitions __mirror_state is created with [50], mirror.state.topic.num.partitions. One that exists keeps its own.
	StatePartitions int32
	// ReplicationFactor is what topics are created with [3], mirror.state.topic.replication.factor.
	ReplicationFactor int16
	// TransactionTimeout is when the cluster aborts the transaction of a process that is gone [10 s]; its coordinator looks every 10 s. Until then records behind it are hidden.
	TransactionTimeout time.Duration
	// Bound is the longest time of one call [30 s], whatever its context allows. It should be more than TransactionTimeout and 10 s.
	Bound time.Duration

	// Notice is told of records that do not count: a *StrayError (once for each record type and partition), a *SessionRecordError (once each). nil: nobody is. It is called while
	// a call reads, so it must return soon and not call the Store.
	Notice func(error)

	namespace string // begins every topic's name, so that tests need not share topics
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Seeds) == 0 || slices.ContainsFunc(c.Seeds, func(seed string) bool { return strings.TrimSpace(seed) == "" }) {
		return c, errors.New("kafkastore: no seed address, or an empty one: name at least one broker of the destination as host:port")
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.StatePartitions <= 0 {
		c.StatePartitions = DefaultStatePartitions
	}
	if c.ReplicationFactor <= 0 {
		c.ReplicationFactor = DefaultReplicationFactor
	}
	if c.TransactionTimeout <= 0 {
		c.TransactionTimeout = DefaultTransactionTimeout
	}
	if c.Bound <= 0 {
		c.Bound = DefaultBound
	}
	return c, nil
}

// client makes one client. The versions are those of Kafka 3.0: from version 12 of Produce and 5 of EndTxn on, a transaction begins without being asked for and the epoch moves
// with each end (KIP-890, transaction version 2), which no request here expects.
func (c Config) client(hooks ...kgo.Hook) (*kgo.Client, error) {
	opts := append([]kgo.Opt{kgo.DialTimeout(5 * time.Second)}, c.ClientOptions...)
	return kgo.NewClient(append(opts,
		kgo.WithHooks(hooks...),
		kgo.SeedBrokers(c.Seeds...),
		kgo.MaxVersions(kversion.V3_0_0()),
		kgo.DisableClientMetrics(),
		kgo.RequestTimeoutOverhead(10*time.Second),
		kgo.RequestRetries(1),
		kgo.MetadataMaxAge(time.Hour),
		kgo.MetadataMinAge(10*time.Minute),
	)...)
}
