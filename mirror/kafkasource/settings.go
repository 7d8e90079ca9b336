package kafkasource

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/internal/secret"
	"github.com/clustermirror/clustermirror/mirror"
)

// FromSettings makes a Config of a mirror's connection settings, by Kafka's names (spec §7): bootstrap.servers, client.id, request.timeout.ms, connections.max.idle.ms,
// socket.connection.setup.timeout.ms and …max.ms, security.protocol, sasl.* and ssl.*. Others are not looked at, but an unknown name of the sasl., ssl. and security. families is
// an error. request.timeout.ms is Config.Bound; where it is absent the bound is this package's 10 s, not Kafka's 30 s, so that one silent broker is noticed sooner.
//
// Nothing is connected to, and no file of a secret or a certificate is read: that happens with each connection and each re-authentication (KIP-368). So a changed password or
// certificate is taken up without a restart. No error and no printed Config holds a secret. What is wrong wherever it is read is *mirror.Error with InvalidConfig to errors.Is; a
// reference in a setting that is no secret is resolved here, and may be right on another host.
func FromSettings(settings mirror.Settings) (Config, error) {
	s := map[string]string{}
	maps.Copy(s, settings)
	if strings.TrimSpace(s[kafkaconfig.RequestTimeout]) == "" {
		s[kafkaconfig.RequestTimeout] = fmt.Sprint(defaultBound.Milliseconds())
	}
	connection, err := kafkaconfig.Parse(s)
	if err != nil {
		err = fmt.Errorf("kafkasource: settings of the source: %w", err)
		for name, value := range s {
			if !secret.IsSetting(name) && secret.HasReference(value) {
				return Config{}, err
			}
		}
		return Config{}, &settingsError{err}
	}
	return Config{Seeds: connection.Seeds, ClientOptions: connection.Options, Certificates: func() []mirror.Certificate { return certificates(connection.Certificates()) }, Bound: connection.RequestTimeout}, nil
}

func certificates(found []kafkaconfig.Certificate) (all []mirror.Certificate) {
	for _, c := range found {
		all = append(all, mirror.Certificate(c))
	}
	return all
}

// Certificates implements mirror.CertificateReader, by Config.Certificates.
func (s *Source) Certificates() []mirror.Certificate {
	if s.cfg.Certificates == nil {
		return nil
	}
	return s.cfg.Certificates()
}

// settingsError: no connection can ever be made with these settings.
type settingsError struct{ error }

func (e *settingsError) Unwrap() error { return e.error }

// Is finds InvalidConfig.
func (e *settingsError) Is(target error) bool {
	t, ok := target.(*mirror.Error)
	return ok && t.Code == mirror.InvalidConfig
}

// FetchOptions makes a mirror's FetchOptions (mirror.Config.Fetch) of its settings fetch.wait.max.ms, fetch.min.bytes, fetch.max.bytes (of one partition) and
// fetch.response.max.bytes, with the defaults of spec §7.
func FetchOptions(settings mirror.Settings) (mirror.FetchOptions, error) {
	var o mirror.FetchOptions
	for _, f := range []struct {
		name      string
		otherwise int64
		set       func(n int64)
	}{
		{"fetch.wait.max.ms", 1000, func(n int64) { o.MaxWait = time.Duration(n) * time.Millisecond }},
		{"fetch.min.bytes", 1, func(n int64) { o.MinBytes = int32(n) }},
		{"fetch.max.bytes", 1 << 20, func(n int64) { o.PartitionMaxBytes = int32(n) }},
		{"fetch.response.max.bytes", 10 << 20, func(n int64) { o.MaxBytes = int32(n) }},
	} {
		n, err := kafkaconfig.ReadInt(f.name, settings[f.name], f.otherwise, 1)
		if err != nil {
			return mirror.FetchOptions{}, fmt.Errorf("kafkasource: settings of the source: %w", err)
		}
		f.set(n)
	}
	return o, nil
}

// Open opens the source that settings describe. It has the shape of mirror.Config.OpenSource. It connects to nothing: the first call does.
func Open(_ context.Context, settings mirror.Settings) (mirror.Source, error) {
	cfg, err := FromSettings(settings)
	if err != nil {
		return nil, err
	}
	src, err := New(cfg)
	if err != nil {
		return nil, err // and not a Source that is nil inside
	}
	return src, nil
}
