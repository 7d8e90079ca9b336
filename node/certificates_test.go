package node

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestAcceptance6_6NodeTellsWhenItsCertificatesEnd: in /status and /metrics, also while it stands by, and as they are when they were read last.
func TestAcceptance6_6NodeTellsWhenItsCertificatesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := time.Unix(2_000_000_000, 0).UTC()
		var now atomic.Pointer[Certificates]
		now.Store(&Certificates{
			Destination: []mirror.Certificate{{Own: true, Of: "ssl.keystore.location", Ends: first.Add(time.Hour)}, {Of: "a:9093", Ends: first.Add(2 * time.Hour)}},
			Listener:    []mirror.Certificate{{Own: true, Of: "ssl.keystore.location", Ends: first}},
		})
		c := newCluster(t)
		c.place <- struct{}{} // somebody else has the place
		r := c.run(t, "9999", func(cfg *Config) { cfg.Certificates = func() Certificates { return *now.Load() } })
		until(t, "it stands by", func() bool { return r.Status().State == StandingBy })
		synctest.Wait()
		all := r.Status().Certificates
		if len(all) != 3 || all[0].Side != "listener" || !all[0].Ends.Equal(first) || all[2].Of != "a:9093" {
			t.Errorf("%+v", all)
		}
		ask := func(path string) string {
			w := httptest.NewRecorder()
			r.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return w.Body.String()
		}
		if text := ask("/status"); !strings.Contains(text, `"Side": "listener"`) || !strings.Contains(text, `"Ends": "2033-05-18T03:33:20Z"`) {
			t.Error(text)
		}
		if text := ask("/metrics"); !strings.Contains(text, `side="listener"} 2e+09`) || !strings.Contains(text, `certificate="broker",destination_cluster_id="",mirror="",side="destination"} 2.0000072e+09`) {
			t.Error(text)
		}
		now.Store(&Certificates{Destination: now.Load().Destination})
		time.Sleep(certificatesInterval)
		synctest.Wait()
		if all := r.Status().Certificates; len(all) != 2 {
			t.Errorf("after a change: %+v", all)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}
