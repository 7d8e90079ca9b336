package kraft

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/clustermirror/mirror"
)

var _ mirror.ACLWriter = (*Destination)(nil)

// ACLs lists every access rule, as one broker knows them. A word for which this version has no name stands as UNKNOWN(16), with Kafka's number; such a rule can be neither made nor
// removed here.
func (d *Destination) ACLs(ctx context.Context) ([]mirror.ACL, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	rules, err := d.metadataClient.ACLs(bounded)
	if err != nil && !errors.Is(err, mirror.ErrNoAuthorizer) {
		err = fmt.Errorf("kraft: %w", err)
	}
	return rules, err
}

// CreateACLs adds rules through a broker, which hands them to the controllers. Not outside this process's session: another process may have its place.
func (d *Destination) CreateACLs(ctx context.Context, rules []mirror.ACL) []error {
	return d.changeACLs(ctx, rules, d.metadataClient.CreateACLs)
}

// DeleteACLs removes exactly these rules, as CreateACLs adds them.
func (d *Destination) DeleteACLs(ctx context.Context, rules []mirror.ACL) []error {
	return d.changeACLs(ctx, rules, d.metadataClient.DeleteACLs)
}

func (d *Destination) changeACLs(ctx context.Context, rules []mirror.ACL, change func(context.Context, []mirror.ACL) []error) []error {
	if len(rules) == 0 {
		return nil
	}
	if err := d.inSession(); err != nil {
		errs := make([]error, len(rules))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	return change(bounded, rules)
}
