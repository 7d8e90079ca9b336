// Package deployment holds what the files below examples/kafka-mirror/deploy say against the code: settings, ports, exit statuses, times; and of the pages in docs that the tests they name are
// there, that their links lead somewhere, and that every verb has its row. It has tests only.
//
// What it does not do: no container engine and no Kubernetes is there, so the image is not built and the manifest not applied. The command that the Containerfile builds is built as it says
// there, the node files inside the manifest are read as a node reads them, and the unit is given to systemd-analyze.
package deployment
