// Package mirrortest runs a failover and a failback in a service's own go test, in milliseconds: two clusters that speak the Kafka protocol on ports of this machine, and
// a mirror between them. The service under test knows nothing of it. It gets addresses for its bootstrap.servers, and uses the client that it has.
//
//	func TestServiceSurvivesAFailover(t *testing.T) {
//		dr := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 3}})
//		svc := service.New(dr.Primary().Addresses())
//		… // the service works
//		dr.KillPrimary()
//		over := dr.Failover()
//		svc = service.New(dr.Standby().Addresses())
//		… // does it go on? over.NotCopied has what the standby never got
//		back := dr.Failback()
//		svc = service.New(dr.Primary().Addresses())
//		… // back.Return.GivenUp has what the old primary gave up
//		dr.Verify()
//	}
package mirrortest
