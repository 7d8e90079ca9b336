package kafkaconfig

import (
	"github.com/clustermirror/clustermirror/internal/secret"
)

// The login modules of Kafka's clients.
const (
	plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
	oauthModule = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
)

// parseLogin reads a JAAS line.
func parseLogin(text string) (secret.Login, *Error) {
	l, err := secret.ParseLogin(text)
	if err != nil {
		return l, &Error{Setting: JAAS, Problem: err.Error(), Advice: `write: <module class> required name="value" … ; with \" and \\ for quotes and backslashes inside a value`}
	}
	return l, nil
}
