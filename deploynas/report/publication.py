"""What a publisher says of a model and no measurement can: its licence, and the model on a hub that it was made from.

Licences are SPDX expressions. The hub knows a list of its own, most of whose names are SPDX's in small letters; for any
other its cards say `license: other` with a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from deploynas.errors import InputError

# https://huggingface.co/docs/hub/repositories-licenses, those that SPDX has too; SPDX's name in small letters
_NAMES = """
apache-2.0 mit afl-3.0 artistic-2.0 bsl-1.0 bsd-2-clause bsd-3-clause bsd-3-clause-clear cc0-1.0 cc-by-2.0 cc-by-2.5
cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 agpl-3.0 gpl-2.0 gpl-3.0 lgpl-2.1 lgpl-3.0 isc
lppl-1.3c ms-pl mpl-2.0 osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib
"""
_ON_THE_HUB = frozenset(_NAMES.split())
_OTHERWISE_ON_THE_HUB = {"c-uda-1.0": "c-uda", "odc-by-1.0": "odc-by", "odbl-1.0": "odbl", "pddl-1.0": "pddl"}
# a repository of the hub: `name` or `owner/name`, as its client checks them
_MODEL_ID = re.compile(r"(?=.{1,96}$)(?!.*(--|\.\.))[A-Za-z0-9]([\w.-]*\w)?(/[A-Za-z0-9]([\w.-]*\w)?)?", re.ASCII)


@dataclass(frozen=True)
class Publication:
    """Nothing is stated that nobody said."""

    license: str | None = None  # an SPDX expression
    base_model: str | None = None  # by its name on the hub

    @classmethod
    def of(cls, license: str | None, base_model: str | None) -> Publication:
        """Checked, and with SPDX's own spelling."""
        if base_model is not None and not _MODEL_ID.fullmatch(base_model):
            raise InputError(f"`{base_model}` is no name of a model on a hub", hint="`--base-model owner/name`")
        return cls(None if license is None else _spdx(license), base_model)

    def hub_license(self) -> dict[str, str]:
        """The keys of a card's header: a name of the hub's list, or `other` with a name, and a link if SPDX has one."""
        if self.license is None:
            return {}
        known = re.sub(r"-(only|or-later)$", "", self.license.lower())
        known = _OTHERWISE_ON_THE_HUB.get(known, known)
        if known in _ON_THE_HUB or known in _OTHERWISE_ON_THE_HUB.values():
            return {"license": known}
        single = " " not in self.license and not self.license.startswith("LicenseRef-")
        link = {"license_link": f"https://spdx.org/licenses/{self.license.rstrip('+')}.html"} if single else {}
        return {"license": "other", "license_name": self.license, **link}


def _spdx(text: str) -> str:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression as error:
        raise InputError(
            f"`{text}` is no SPDX licence: {error}",
            hint="`Apache-2.0`, `MIT`, `CC-BY-4.0`, ...; `LicenseRef-NAME` for one of your own",
        ) from error
