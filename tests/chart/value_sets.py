"""Sets of values that people may choose, by name; together they reach every template and every branch in them."""

from typing import Final

from tests.chart.programs import Object

DIGEST: Final = "sha256:" + "0123456789abcdef" * 4
OUTSIDE: Final[Object] = {
    "mode": "extenderOnly",
    "networkPolicy": {"schedulerFrom": [{"ipBlock": {"cidr": "192.0.2.7/32"}}]},
}
"""A kube-scheduler of one's own, at a known address."""
RULES: Final[list[Object]] = [
    {"name": "mig", "driver": "gpu.example.com", "devices": "device.driver == 'x'", "compatibilityGroups": ["mig"]},
    {
        "name": "fabric",
        "devices": "true",
        "bindingConditions": ["Attached"],
        "bindingFailureConditions": ["Failed"],
        "bindsToNode": True,
    },
    {"name": "modes", "compatibleOnlyWith": "true", "neighbours": {"within": "node", "devices": "true"}},
    {"name": "boards", "counterSet": "board-0", "compatibilityGroups": ["a", "b"], "physicalDevice": "'0'"},
]
VALUE_SETS: Final[dict[str, Object]] = {
    "default": {},
    "outside": OUTSIDE,
    "outside-fixed-address": OUTSIDE | {"service": {"clusterIP": "10.96.0.77", "annotations": {"a": "1"}}},
    "outside-ipv6": OUTSIDE | {"service": {"clusterIP": "fd00::77"}},
    "outside-no-network-policy": {"mode": "extenderOnly", "networkPolicy": {"enabled": False}},
    "outside-monitors": OUTSIDE | {"podMonitor": {"enabled": True, "schedulerTokenSecret": {"name": "unused"}}},
    "outside-settings": OUTSIDE | {"extender": {"settings": {"leader_election": {"duration_seconds": 30}}}},
    "alerts": {
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}, "alertLabels": {"team": "gpu"}}
    },
    "alerts-changed": {
        "prometheusRule": {
            "enabled": True,
            "selector": 'job="dra-extender"',
            "disabled": ["DRAExtenderPodsWaitLong"],
            "overrides": {"DRAExtenderFilterSlow": {"severity": "critical", "for": "1h30m"}},
            "runbookURL": "https://runbooks.example.com/",
            "thresholds": {
                "watchAgeSeconds": 300,
                "reclaimFailures": 0,
                "backgroundFailures": 5,
                "podWaitSeconds": 86400,
                "filterSeconds": 0.1,
                "searchRefusals": 100,
                "certificateSeconds": 2592000,
            },
        }
    },
    "outside-own-certificates": OUTSIDE
    | {
        "certificates": {
            "source": "secret",
            "secretName": "extender-tls",
            "allowedNames": ["kube-scheduler.example.com"],
        }
    },
    "outside-cert-manager": OUTSIDE
    | {
        "certificates": {
            "source": "certManager",
            "certManager": {"issuerRef": {"name": "ca", "kind": "ClusterIssuer", "group": "cert-manager.io"}},
        }
    },
    "outside-plain": OUTSIDE | {"certificates": {"source": "none"}},
    "outside-never-renewed": OUTSIDE | {"certificates": {"job": {"schedule": ""}, "allowedNames": []}},
    "outside-authorized-metrics": OUTSIDE
    | {
        "scraping": {"access": "authorized", "tokenSecret": {"name": "scraper", "key": "jwt"}},
        "serviceMonitor": {"enabled": True},
    },
    "authorized-metrics": {
        "scraping": {"access": "authorized", "tokenSecret": {"name": "scraper", "key": "jwt"}},
        "certificates": {"job": {"schedule": "0 0 1 * *"}},
        "podMonitor": {"enabled": True},
    },
    "dashboard": {
        "grafanaDashboard": {"enabled": True, "labels": {"a": "b"}, "annotations": {"grafana_folder": "GPU"}}
    },
    "no-metrics": {"scraping": {"access": "off"}},
    "one-replica": {"replicas": 1},
    "many-replicas": {"replicas": 5, "podLabels": {"team": "gpu"}, "podAnnotations": {"note": "true"}},
    "common-labels": {"commonLabels": {"team": "gpu", "tier": "1"}, "podLabels": {"tier": "2"}},
    "short-binding": {"bindingTimeoutSeconds": 1},
    "long-binding": {"bindingTimeoutSeconds": 86400},
    "other-name": {"fullnameOverride": "gpus"},
    "long-name": {"fullnameOverride": "a" * 80},
    "own-image": {"image": {"repository": "Registry.example.com:5000/team/dra__extender", "tag": "v0.1.0-rc.1"}},
    "pinned-images": {"image": {"digest": DIGEST}, "scheduler": {"image": {"digest": DIGEST}}},
    "mirrored-scheduler": {
        "scheduler": {"image": {"repository": "mirror.example.com/kube-scheduler", "pullPolicy": "Always"}}
    },
    "pull-secrets": {"imagePullSecrets": [{"name": "registry"}], "image": {"pullPolicy": "Always"}},
    "settings": {
        "extender": {
            "settings": {
                "log": {"level": "debug", "format": "text"},
                "scheduling": {"scheduler_names": ["a", "b"], "selector_cache_bytes": 268435456, "search_share": 0.5},
                "features": {"compatibility_groups": False},
                "server": {"stop_seconds": 10},
            }
        }
    },
    "environment": {
        "extender": {
            "extraEnv": [
                {"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "extraVolumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}}],
            "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        }
    },
    "resources": {
        "extender": {"resources": {"requests": {"cpu": 2, "memory": "2Gi"}, "limits": {"memory": "4Gi"}}},
        "scheduler": {"resources": {"requests": {"cpu": "0.5", "memory": 1e9}, "limits": {"memory": None}}},
    },
    "names-like-numbers": {
        "serviceAccount": {"name": "123"},
        "scheduler": {"name": "1e3"},
        "viewerRole": {"name": "0"},
    },
    "container-context": {
        "extender": {"securityContext": {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}},
        "scheduler": {"securityContext": {"capabilities": {"drop": ["NET_RAW"]}}},
    },
    "openshift": {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
    "large-user": {"podSecurityContext": {"runAsUser": 1000680000, "fsGroup": 1000680000, "supplementalGroups": [5]}},
    "policy": {"policy": {"version": 1, "rules": RULES}},
    "empty-policy": {"policy": {"rules": []}},
    "group-claims": {"groupClaims": {"enabled": True}},
    "no-viewer": {"viewerRole": {"create": False}},
    "other-viewer": {"viewerRole": {"name": "gpu-viewer"}},
    "scheduler": {
        "scheduler": {
            "name": "gpu.example-scheduler",
            "clientConnection": {"qps": 2000000, "burst": 4000000},
            "extraArgs": ["-v=4", "--feature-gates=GenericWorkload=true"],
        }
    },
    "weights": {"scheduler": {"pluginWeights": {"NodeResourcesFit": 5, "TaintToleration": 10}}},
    "existing-account": {"serviceAccount": {"create": False, "name": "gpus"}},
    "annotated-account": {"serviceAccount": {"name": "gpus", "annotations": {"eks.amazonaws.com/role-arn": "arn:aws"}}},
    "service-monitor": {"serviceMonitor": {"enabled": True, "interval": "1m30s", "labels": {"release": "prometheus"}}},
    "pod-monitor": {"podMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}}},
    "pod-monitor-of-both": {"podMonitor": {"enabled": True, "schedulerTokenSecret": {"name": "scraper", "key": "jwt"}}},
    "nobody-scrapes": {"networkPolicy": {"metricsFrom": []}},
    "several-scrape": {
        "networkPolicy": {
            "metricsFrom": [
                {
                    "namespaceSelector": {"matchLabels": {"a": "b"}},
                    "podSelector": {"matchLabels": {"app": "prometheus"}},
                },
                {"ipBlock": {"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}},
            ]
        }
    },
    "egress": {"networkPolicy": {"egress": {"enabled": True}}},
    "egress-to-addresses": {
        "networkPolicy": {
            "egress": {
                "enabled": True,
                "apiServerTo": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
                "apiServerPorts": [6443],
                "extra": [{"to": [{"podSelector": {}}], "ports": [{"port": 4317, "protocol": "TCP"}]}],
            }
        }
    },
    "one-allocator": {
        "admission": {
            "drivers": ["gpu.example.com", "nic.example.com"],
            "allocations": True,
            "pods": "deny",
            "deviceClasses": ["gpu", "mig-3g"],
            "extendedResources": ["example.com/gpu"],
        }
    },
    "warned-by-resource": {"admission": {"pods": "warn", "extendedResources": ["example.com/gpu"]}},
    "outside-one-allocator": OUTSIDE | {"admission": {"drivers": ["gpu.example.com"], "allocations": True}},
    "second-release": {
        "wakeUpClass": {"create": False},
        "viewerRole": {"create": False},
        "admissionPolicy": {"otherAccounts": ["system:serviceaccount:first:dra-extender"]},
    },
    "no-admission-policy": {"admissionPolicy": {"enabled": False}},
    "default-priority": {"priorityClassName": ""},
    "own-priority": {"priorityClassName": "gpus", "terminationGracePeriodSeconds": 3600},
    "recreate": {"replicas": 1, "strategy": {"type": "Recreate"}},
    "surge": {"strategy": {"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 2}}},
    "not-spread": {"topologySpreadConstraints": []},
    "spread-over-zones": {
        "topologySpreadConstraints": [
            {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
            {
                "topologyKey": "kubernetes.io/hostname",
                "maxSkew": 2,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "x"}},
                "matchLabelKeys": ["pod-template-hash"],
            },
        ]
    },
    "control-plane-nodes": {
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        ],
    },
    "affinity": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]},
                    }
                ]
            }
        }
    },
}
