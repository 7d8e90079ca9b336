package kraft

import (
	"context"
	"fmt"

	"github.com/clustermirror/clustermirror/mirror"
)

var _ mirror.RightsChecker = (*Destination)(nil)

// MissingRights tries rights at the brokers with requests that come to nothing: Describe and Alter on the cluster, Describe, Read, DescribeConfigs and AlterConfigs on topics, Describe and
// Read on groups. Others are unknown here; what joining needs is Preflight's to find out.
func (d *Destination) MissingRights(ctx context.Context, rights []mirror.Right) (missing, unknown []mirror.Right, err error) {
	if err := d.usable(); err != nil {
		return nil, rights, err
	}
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	missing, unknown, err = d.metadataClient.MissingRights(bounded, rights)
	if err != nil {
		err = fmt.Errorf("kraft: finding out rights: %w", err)
	}
	return missing, unknown, err
}
