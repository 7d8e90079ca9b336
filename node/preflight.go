package node

import (
	"context"
	"errors"

	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// Preflight looks whether the cluster can be joined as the file says, and changes nothing: not even the topics of states and wishes are made. Errors: the cluster cannot be reached at all; what
// is found is in the report, in the words of the file.
func (f *File) Preflight(ctx context.Context) (report kraft.Report, err error) {
	records, err := f.Records(ctx)
	if err != nil {
		return kraft.Report{}, err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	c := f.Kraft()
	c.Remember = records
	if report, err = kraft.Preflight(ctx, c); err != nil {
		return report, err
	}
	report.Findings = append(report.Findings, f.enoughBrokers(ctx)...)
	for i := range report.Findings {
		finding := &report.Findings[i]
		finding.What, finding.Do = InProperties(finding.What), InProperties(finding.Do)
	}
	return report, nil
}
