// Package tools names the programs that tests/chart/admin/apiserver_install.py builds, so that go.mod and go.sum hold what they need.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
