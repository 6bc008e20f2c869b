"""The parts of the Kubernetes client for Python that are used here.

Importing `kubernetes` runs the synchronous client, with requests and oauthlib: 220 modules that nothing here calls, 7 MB.  So the
package is entered into `sys.modules` without being run; its subpackages can be imported as always.
"""

import sys
from importlib.util import find_spec, module_from_spec

if "kubernetes" not in sys.modules and (_package := find_spec("kubernetes")) is not None:
    sys.modules["kubernetes"] = module_from_spec(_package)

from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_kube_config_from_dict
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigMerger

__all__ = [
    "SERVICE_CERT_FILENAME",
    "SERVICE_HOST_ENV_NAME",
    "SERVICE_TOKEN_FILENAME",
    "ConfigException",
    "ConfigNode",
    "Configuration",
    "InClusterConfigLoader",
    "KubeConfigMerger",
    "RESTClientObject",
    "load_kube_config_from_dict",
]
