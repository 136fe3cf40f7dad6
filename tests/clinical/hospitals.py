"""Made-up hospitals, written as the official files of MIMIC-III."""

import csv
import gzip
from itertools import count
from pathlib import Path

from sbil.clinical.mimic3.source import rows_of

# The columns of the official files.
HEADERS = {
    "PATIENTS": "ROW_ID SUBJECT_ID GENDER DOB DOD DOD_HOSP DOD_SSN EXPIRE_FLAG",
    "ICUSTAYS": "ROW_ID SUBJECT_ID HADM_ID ICUSTAY_ID DBSOURCE FIRST_CAREUNIT LAST_CAREUNIT FIRST_WARDID LAST_WARDID "
    "INTIME OUTTIME LOS",
    "CHARTEVENTS": "ROW_ID SUBJECT_ID HADM_ID ICUSTAY_ID ITEMID CHARTTIME STORETIME CGID VALUE VALUENUM VALUEUOM "
    "WARNING ERROR RESULTSTATUS STOPPED",
    "LABEVENTS": "ROW_ID SUBJECT_ID HADM_ID ITEMID CHARTTIME VALUE VALUENUM VALUEUOM FLAG",
    "PRESCRIPTIONS": "ROW_ID SUBJECT_ID HADM_ID ICUSTAY_ID STARTDATE ENDDATE DRUG_TYPE DRUG DRUG_NAME_POE "
    "DRUG_NAME_GENERIC FORMULARY_DRUG_CD GSN NDC PROD_STRENGTH DOSE_VAL_RX DOSE_UNIT_RX FORM_VAL_DISP FORM_UNIT_DISP "
    "ROUTE",
    "PROCEDUREEVENTS_MV": "ROW_ID SUBJECT_ID HADM_ID ICUSTAY_ID STARTTIME ENDTIME ITEMID VALUE VALUEUOM LOCATION "
    "LOCATIONCATEGORY STORETIME CGID ORDERID LINKORDERID ORDERCATEGORYNAME SECONDARYORDERCATEGORYNAME "
    "ORDERCATEGORYDESCRIPTION ISOPENBAG CONTINUEINNEXTDEPT CANCELREASON STATUSDESCRIPTION COMMENTS_EDITEDBY "
    "COMMENTS_CANCELEDBY COMMENTS_DATE",
}
# What patient 1 had in the single day of stay 1: every covariate once, in its own unit.
FIRST_ITEMS = {row["covariate"]: row for row in reversed(rows_of("items.csv"))}
ORDINARY = {
    row["covariate"]: {"heart_rate": 76.0, "temperature": 37.0, "ph": 7.4, "gcs_eye": 4.0, "gcs_motor": 6.0}.get(
        row["covariate"], (float(row["low"]) + float(row["high"])) / 2
    )
    for row in rows_of("covariates.csv")
}


class Hospital:
    """Rows to be written as the official files."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, object]]] = {name: [] for name in HEADERS}
        self.number = count(1)
        self.patient(1)
        self.stay(1, 1, "2150-01-01 08:00:00", "2150-01-01 20:00:00")
        self.ventilator(1, "2150-01-01 09:00:00")
        for covariate, item in FIRST_ITEMS.items():
            values = {"ITEMID": item["itemid"], "CHARTTIME": "2150-01-01 10:00:00", "VALUENUM": ORDINARY[covariate]}
            self.add(item["events"].upper(), SUBJECT_ID=1, **values)

    def add(self, table: str, **values: object) -> None:
        self.rows[table].append({"ROW_ID": next(self.number), **values})

    def patient(self, subject: int, born: str = "2100-01-01 00:00:00") -> None:
        self.add("PATIENTS", SUBJECT_ID=subject, DOB=born)

    def stay(self, subject: int, stay: int, begin: str, end: str) -> None:
        self.add("ICUSTAYS", SUBJECT_ID=subject, ICUSTAY_ID=stay, INTIME=begin, OUTTIME=end)

    def chart(self, subject: int, item: int, when: str, number: object = "", value: object = "", error: object = 0):
        self.add(
            "CHARTEVENTS",
            **{"SUBJECT_ID": subject, "ITEMID": item, "CHARTTIME": when, "VALUE": value, "VALUENUM": number},
            ERROR=error,
        )

    def ventilator(self, subject: int, when: str, mode: str = "Assist Control") -> None:
        self.chart(subject, 720, when, value=mode)

    def spell(self, subject: int, begin: str, end: str, item: int = 225792, status: str = "FinishedRunning") -> None:
        times = {"STARTTIME": begin, "ENDTIME": end}
        self.add("PROCEDUREEVENTS_MV", SUBJECT_ID=subject, ITEMID=item, STATUSDESCRIPTION=status, **times)

    def drug(self, subject: int, begin: str, end: str, drug: str = "Vancomycin", route: str = "IV", kind: str = "MAIN"):
        dates = {"STARTDATE": begin, "ENDDATE": end}
        self.add("PRESCRIPTIONS", SUBJECT_ID=subject, DRUG_TYPE=kind, DRUG=drug, ROUTE=route, **dates)

    def write(self, folder: Path, packed: bool = False, lower: bool = False) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for table, rows in self.rows.items():
            columns = HEADERS[table].split()
            name = f"{table.lower() if lower else table}.csv" + (".gz" if packed else "")
            with gzip.open(folder / name, "wt") if packed else (folder / name).open("w") as file:
                writer = csv.writer(file, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
                writer.writerow([column.lower() if lower else column for column in columns])
                writer.writerows([[row.get(column, "") for column in columns] for row in rows])
        return folder


def ward(patients: int = 12, days: int = 4) -> Hospital:
    """Patients with a stay of some days each. A fast heart means ventilation; every second one has antibiotics."""
    made = Hospital()
    for subject in range(2, patients + 2):
        made.patient(subject)
        made.stay(subject, 100 + subject, "2150-03-01 10:00:00", f"2150-03-{days:02} 12:00:00")
        for day in range(1, days + 1):
            fast = (subject + day) % 3 == 0
            made.chart(subject, 211, f"2150-03-{day:02} 11:00:00", (110 if fast else 70) + subject % 5)
            if fast:
                made.ventilator(subject, f"2150-03-{day:02} 11:30:00")
        if subject % 2:
            made.drug(subject, "2150-03-01", f"2150-03-{days:02}")
    return made
