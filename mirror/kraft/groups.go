package kraft

import (
	"context"
	"fmt"

	"github.com/clustermirror/clustermirror/mirror"
)

var _ mirror.GroupWriter = (*Destination)(nil)

// Groups asks each live broker for the groups that it coordinates. Those of a broker that is not alive have, or get, another coordinator.
func (d *Destination) Groups(ctx context.Context) ([]mirror.Group, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	groups, err := d.metadataClient.Groups(bounded)
	if err != nil {
		err = fmt.Errorf("kraft: listing groups: %w", err)
	}
	return groups, err
}

// GroupOffsets asks the coordinators for the stable committed offsets of groups (KIP-447), and for the start offsets of share groups (KIP-932).
func (d *Destination) GroupOffsets(ctx context.Context, groups []mirror.Group) (map[string]mirror.GroupOffsets, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	offsets, err := d.metadataClient.GroupOffsets(bounded, groups)
	if err != nil {
		err = fmt.Errorf("kraft: reading offsets of groups: %w", err)
	}
	return offsets, err
}

// WriteGroupOffsets commits offsets of a group without members at its coordinator, which refuses a group with members. Not outside this process's session: another process may have its
// partitions by then.
func (d *Destination) WriteGroupOffsets(ctx context.Context, group mirror.Group, offsets map[mirror.TopicPartition]mirror.GroupOffset) (map[mirror.TopicPartition]error, error) {
	if err := d.inSession(); err != nil {
		return nil, err
	}
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	refused, err := d.metadataClient.WriteGroupOffsets(bounded, group, offsets)
	if err != nil {
		err = fmt.Errorf("kraft: moving %w", err)
	}
	return refused, err
}
