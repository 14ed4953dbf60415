"""Waits for the Deployment that the controller makes of the runtime, then asks the /readyz of each pod."""

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

PATIENCE_SECONDS = 60
account, namespace, name, service = sys.argv[1:]
host = os.environ["KUBERNETES_SERVICE_HOST"]
server = f"[{host}]" if ":" in host else host
url = f"https://{server}:{os.environ['KUBERNETES_SERVICE_PORT']}/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
request = urllib.request.Request(url, headers={"Authorization": f"Bearer {Path(account, 'token').read_text()}"})
context = ssl.create_default_context(cafile=f"{account}/ca.crt")
end = time.monotonic() + PATIENCE_SECONDS
while True:
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            deployment = json.load(answer)
        break
    except OSError as error:
        if time.monotonic() > end:
            sys.exit(
                f"no Deployment {name} in {namespace} after {PATIENCE_SECONDS} s ({error}): the controller cannot reconcile the runtime. "
                "Its log has the reason; the namespace needs the label modelmesh-enabled=true"
            )
        time.sleep(1)
if deployment["spec"]["replicas"] == 0:
    print(f"the Deployment {name} is scaled to zero: pods come with the first model")
    sys.exit(0)
sys.exit(subprocess.call(["modelmesh-triton-adapter", "probe", "--ready", "--host", service, "--timeout", "10"]))
